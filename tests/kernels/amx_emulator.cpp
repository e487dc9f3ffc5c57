// Encodings and operation: Intel 64 and IA-32 Architectures Software Developer's Manual, volume 2, AMX instructions.
#include "kernels/amx_emulator.h"

#if defined(__x86_64__) && defined(__linux__)

#include <signal.h>
#include <ucontext.h>
#include <unistd.h>

#include <cmath>
#include <cstdint>
#include <cstring>

namespace octalane::test {
namespace {

using Ints = int32_t __attribute__((vector_size(64)));
using Floats = float __attribute__((vector_size(64)));

struct Tile {
  alignas(64) uint8_t row[16][64];
};

struct Configuration {
  uint8_t palette, start_row, reserved[14];
  uint16_t row_bytes[16];
  uint8_t rows[16];
};

thread_local Tile tiles[8];
thread_local Configuration configuration;

/// A VEX-encoded instruction of opcode map 0F38, as all tile instructions are.
struct Instruction {
  const uint8_t* next;  ///< the instruction after it
  int prefix;           ///< 0 none, 1 = 66, 2 = F3, 3 = F2
  uint8_t opcode;
  int reg, rm, vvvv;
  bool memory;
  uint64_t address, index;  ///< of the memory operand without its index; the scaled index
};

uint64_t general(const ucontext_t& context, int number) {
  static constexpr int order[16] = {REG_RAX, REG_RCX, REG_RDX, REG_RBX, REG_RSP, REG_RBP, REG_RSI, REG_RDI,
                                    REG_R8,  REG_R9,  REG_R10, REG_R11, REG_R12, REG_R13, REG_R14, REG_R15};
  return static_cast<uint64_t>(context.uc_mcontext.gregs[order[number]]);
}

int32_t displacement(const uint8_t*& at, int bytes) {
  int32_t value = 0;
  if (bytes == 1) value = static_cast<int8_t>(*at);
  if (bytes == 4) std::memcpy(&value, at, 4);
  at += bytes;
  return value;
}

bool parse(const ucontext_t& context, Instruction& out) {
  const auto* at = reinterpret_cast<const uint8_t*>(context.uc_mcontext.gregs[REG_RIP]);
  if (at[0] != 0xC4 || (at[1] & 0x1F) != 2 || (at[2] & 0x84) != 0) return false;  // W0, 128 bits
  const int r = ~at[1] >> 4 & 8, x = ~at[1] >> 3 & 8, b = ~at[1] >> 2 & 8;
  out.prefix = at[2] & 3;
  out.vvvv = ~(at[2] >> 3) & 15;
  out.opcode = at[3];
  const int mod = at[4] >> 6;
  out.reg = (at[4] >> 3 & 7) | r;
  out.rm = at[4] & 7;
  out.memory = mod != 3;
  at += 5;
  out.address = out.index = 0;
  if (out.memory) {
    int base = out.rm | b, bytes = mod == 1 ? 1 : mod == 2 ? 4 : 0;
    bool has_base = true, relative = false;
    if (out.rm == 4) {
      const int scale = *at >> 6, index = (*at >> 3 & 7) | x;
      base = (*at & 7) | b;
      if (index != 4) out.index = general(context, index) << scale;
      if ((*at & 7) == 5 && mod == 0) has_base = false, bytes = 4;
      ++at;
    } else if (out.rm == 5 && mod == 0) {
      has_base = false, relative = true, bytes = 4;
    }
    const int64_t offset = displacement(at, bytes);
    out.address = static_cast<uint64_t>(offset) + (has_base ? general(context, base) : 0);
    if (relative) out.address += reinterpret_cast<uint64_t>(at);
  }
  out.next = at;
  return true;
}

template <class T>
T load(const void* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

/// `depth` of the rows of b, each of four columns.
void multiply_s8(Tile& c, const Tile& a, const Tile& b, int depth, bool a_signed, bool b_signed) {
  for (int m = 0; m < 16; ++m) {
    auto sum = load<Ints>(c.row[m]);
    for (int k = 0; k < depth; ++k) {
      const auto quads = load<Ints>(b.row[k]);
      for (int j = 0; j < 4; ++j) {
        const uint8_t code = a.row[m][4 * k + j];
        const Ints low = quads >> (8 * j) & 255, high = quads << (24 - 8 * j) >> 24;
        sum += (a_signed ? static_cast<int8_t>(code) : code) * (b_signed ? high : low);
      }
    }
    std::memcpy(c.row[m], &sum, sizeof sum);
  }
}

/// The high (part 1) or low halves of 16 pairs of bfloat16, subnormals as 0.
Floats halves(Ints pairs, int part) {
  const Ints bits = part == 1 ? pairs & static_cast<int32_t>(0xFFFF0000u) : pairs << 16;
  const Ints normal = (bits & 0x7F800000) != 0;
  const Ints kept = bits & normal;
  return load<Floats>(&kept);
}

float half(const uint8_t* from) {
  const uint32_t bits = uint32_t{load<uint16_t>(from)} << 16;
  return (bits & 0x7F800000u) == 0 ? 0.0f : load<float>(&bits);
}

/// Odd and even columns are summed apart, in ascending order, by fused multiply-adds from 0, and then added.
void multiply_bf16(Tile& c, const Tile& a, const Tile& b) {
  for (int m = 0; m < 16; ++m) {
    Floats parts[2] = {};
    for (int k = 0; k < 16; ++k) {
      const auto pairs = load<Ints>(b.row[k]);
      for (int part = 0; part < 2; ++part) {
        const float x = half(a.row[m] + 4 * k + 2 * part);
        const Floats w = halves(pairs, part);
        for (int n = 0; n < 16; ++n) parts[part][n] = __builtin_fmaf(x, w[n], parts[part][n]);
      }
    }
    const Floats sum = load<Floats>(c.row[m]) + (parts[0] + parts[1]);
    std::memcpy(c.row[m], &sum, sizeof sum);
  }
}

/// The only shapes in use: whole tiles, but for operands of fewer columns.
bool known_shapes() {
  for (int t = 0; t < 8; ++t) {
    const bool whole_row = configuration.row_bytes[t] == 64, all_rows = configuration.rows[t] == 16;
    if (!(t == 4 || t == 5 ? all_rows : whole_row) || (t < 4 && !all_rows)) return false;
  }
  return configuration.palette == 1;
}

/// False: not a tile instruction, or one that would fault.
bool execute(const Instruction& i) {
  auto* memory = reinterpret_cast<uint8_t*>(i.address);
  if (i.opcode == 0x49 && i.prefix == 0) {
    std::memset(tiles, 0, sizeof tiles);
    std::memset(&configuration, 0, sizeof configuration);
    if (i.memory) std::memcpy(&configuration, memory, sizeof configuration);
    return !i.memory || known_shapes();
  }
  if (!known_shapes() || i.reg > 7) return false;
  if (i.opcode == 0x49 && i.prefix == 3 && !i.memory) {
    std::memset(&tiles[i.reg], 0, sizeof(Tile));
    return true;
  }
  if (i.opcode == 0x4B && i.memory) {
    const size_t bytes = configuration.row_bytes[i.reg];
    for (uint64_t r = 0; r < configuration.rows[i.reg]; ++r) {
      uint8_t* line = memory + r * i.index;
      i.prefix == 2 ? std::memcpy(line, tiles[i.reg].row[r], bytes) : std::memcpy(tiles[i.reg].row[r], line, bytes);
    }
    return i.prefix != 0;
  }
  if (i.memory || i.vvvv > 7) return false;
  if (configuration.row_bytes[i.rm] != 4 * configuration.rows[i.vvvv]) return false;
  if (i.opcode == 0x5C && i.prefix == 2 && configuration.rows[i.vvvv] == 16) {
    multiply_bf16(tiles[i.reg], tiles[i.rm], tiles[i.vvvv]);
    return true;
  }
  if (i.opcode == 0x5E) {
    multiply_s8(tiles[i.reg], tiles[i.rm], tiles[i.vvvv], configuration.rows[i.vvvv], i.prefix >= 2,
                i.prefix == 1 || i.prefix == 3);
    return true;
  }
  return false;
}

void on_illegal_instruction(int, siginfo_t*, void* raw) {
  auto& context = *static_cast<ucontext_t*>(raw);
  Instruction instruction;
  if (parse(context, instruction) && execute(instruction)) {
    context.uc_mcontext.gregs[REG_RIP] = reinterpret_cast<greg_t>(instruction.next);
    return;
  }
  signal(SIGILL, SIG_DFL);  // faults again, for good
}

}  // namespace

bool emulate_amx() {
  static const bool ready = [] {
    if (!__builtin_cpu_supports("avx512bf16") || !__builtin_cpu_supports("avx512vl")) return false;
    struct sigaction action {};
    action.sa_sigaction = on_illegal_instruction;
    action.sa_flags = SA_SIGINFO | SA_NODEFER;
    return sigaction(SIGILL, &action, nullptr) == 0;
  }();
  return ready;
}

}  // namespace octalane::test

#else

namespace octalane::test {
bool emulate_amx() { return false; }
}  // namespace octalane::test

#endif
