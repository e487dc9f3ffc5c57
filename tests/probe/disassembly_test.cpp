// The instruction that a probe row names is the one that its loop runs: read from this executable's machine code, for
// every instruction set of the build, whether or not this machine has it.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <link.h>

#include <cstdio>
#include <map>
#include <regex>
#include <set>
#include <sstream>
#include <vector>

#include "kernels/registry.h"

namespace octalane {
namespace {

struct Line {
  std::string mnemonic, operands;
};

/// Where this executable was loaded.
uintptr_t load_address() {
  uintptr_t base = 0;
  dl_iterate_phdr(
      [](dl_phdr_info* first, size_t, void* to) {
        *static_cast<uintptr_t*>(to) = first->dlpi_addr;
        return 1;
      },
      &base);
  return base;
}

/// The instructions of a function of this executable, up to the next symbol.
std::vector<Line> disassemble(void (*function)(const ProbeArgs&)) {
  constexpr uintptr_t kMostBytes = 1 << 14;
  const uintptr_t begin = reinterpret_cast<uintptr_t>(function) - load_address();
  const std::string command =
      fmt::format("objdump -d -w --no-show-raw-insn --start-address={:#x} --stop-address={:#x} /proc/{}/exe", begin,
                  begin + kMostBytes, ::getpid());
  std::vector<Line> lines;
  std::FILE* pipe = ::popen(command.c_str(), "r");
  if (pipe == nullptr) return lines;
  int symbols = 0;
  char text[4096];
  while (std::fgets(text, sizeof text, pipe) != nullptr) {
    static const std::regex symbol(R"(^[0-9a-f]+ <.*>:\s*$)");
    static const std::regex instruction(R"(^\s*[0-9a-f]+:\s+(?:\{[a-z0-9]+\} )?(\S+)\s*(.*?)\s*$)");
    std::string line(text);
    std::smatch match;
    line.erase(line.find_last_not_of('\n') + 1);
    if (std::regex_match(line, symbol)) {
      ++symbols;
    } else if (symbols == 1 && std::regex_match(line, match, instruction)) {
      lines.push_back({match[1], match[2]});
    }
  }
  ::pclose(pipe);
  return lines;
}

bool multiplies(const std::string& mnemonic) {
  static const std::regex any(R"((v?pmadd|v?pmul|vfn?m|vfc?mul|vf[c]?madd|v?mul|v?dp|vpdp|tdp|i?mul|tcmm).*)");
  return std::regex_match(mnemonic, any);
}

/// Multiplications that a loop may have beside its instruction: the second half of a sequence, the fp32 drain.
bool may_accompany(const ProbeLoop& loop, const std::string& mnemonic) {
  const bool drains = loop.kind != ProbeKind::registers && loop.kind != ProbeKind::loaded;
  static const std::regex fp32(R"((vmulps|vfmadd...ps))");
  if (drains && std::regex_match(mnemonic, fp32)) return true;
  return std::string_view(loop.instruction) == "vpmaddubsw" && mnemonic == "vpmaddwd";
}

std::string register_class(std::string_view isa) {
  if (isa == "amx") return "%tmm";
  return isa == "avx2" || isa == "avxvnni" ? "%ymm" : "%zmm";
}

/// Registers that a loop must add to so that the latency of the instruction is hidden: four clocks or more, two
/// instructions a clock; 16 clocks and one instruction a matrix tile. Of a sequence another instruction adds.
size_t least_accumulators(const IsaTable& isa, const ProbeLoop& loop) {
  if (loop.kind != ProbeKind::registers || std::string_view(loop.instruction) == "vpmaddubsw") return 1;
  return std::string_view(isa.name) == "amx" ? 4 : 12;
}

TEST(ProbeCode, the_named_instruction_alone_multiplies) {
  int loops = 0;
  for (const IsaTable* isa : isa_tables()) {
    for (const ProbeLoop& loop : isa->probes) {
      SCOPED_TRACE(fmt::format("{} {} kind {}", isa->name, loop.instruction, static_cast<int>(loop.kind)));
      const std::vector<Line> code = disassemble(loop.run);
      ASSERT_FALSE(code.empty()) << "objdump of binutils is needed";
      std::set<std::string> accumulators;
      for (const Line& line : code) {
        if (!multiplies(line.mnemonic)) continue;
        if (line.mnemonic != loop.instruction) {
          EXPECT_TRUE(may_accompany(loop, line.mnemonic)) << line.mnemonic << ' ' << line.operands;
          continue;
        }
        EXPECT_NE(line.operands.find(register_class(isa->name)), std::string::npos) << line.operands;
        const bool in_memory = line.operands.find('(') != std::string::npos;
        EXPECT_FALSE(loop.kind == ProbeKind::registers && in_memory) << line.operands;
        accumulators.insert(line.operands.substr(line.operands.rfind('%')));
      }
      EXPECT_GE(accumulators.size(), least_accumulators(*isa, loop));
      ++loops;
    }
  }
#if defined(__x86_64__)
  EXPECT_GE(loops, 7);
#endif
}

/// What the test above would say of a loop that multiplies by other means.
TEST(ProbeCode, another_multiplication_would_be_seen) {
  for (const char* mnemonic : {"vpmaddwd", "vpmulld", "vfmadd213ps", "vfnmadd231ps", "vmulps", "vdpbf16ps", "vpdpbusd",
                               "tdpbssd", "imul", "vfmadd231ph", "vpmaddubsw", "vpdpwssd"}) {
    EXPECT_TRUE(multiplies(mnemonic)) << mnemonic;
    const ProbeLoop loop{.instruction = "none", .kind = ProbeKind::loaded};
    EXPECT_FALSE(may_accompany(loop, mnemonic)) << mnemonic;
  }
  for (const char* mnemonic : {"vpaddd", "vmovaps", "vpbroadcastd", "add", "vaddps"})
    EXPECT_FALSE(multiplies(mnemonic));
}

}  // namespace
}  // namespace octalane
