#include "cuda/probe_loops.h"

#include <fmt/format.h>

#include <random>

#include "cuda/probe_shapes.h"

namespace octalane::cuda {
namespace {

constexpr int kHopper = 90;

struct Row {
  const char* instruction;
  const char* function;
  const char* ptx;
  Element element;
  bool wgmma, drains;
};

// The 16-bit lanes drain nothing: their accumulators are the sums.
constexpr Row kRows[] = {
    {"mma.s8", "mma_s8", "mma.sync.m16n8k32.s32.s8.s8.s32", Element::s8, false, true},
    {"mma.e4m3", "mma_e4m3", "mma.sync.m16n8k32.f32.e4m3.e4m3.f32", Element::e4m3, false, true},
    {"mma.bf16", "mma_bf16", "mma.sync.m16n8k16.f32.bf16.bf16.f32", Element::bf16, false, false},
    {"mma.f16", "mma_f16", "mma.sync.m16n8k16.f32.f16.f16.f32", Element::f16, false, false},
    {"wgmma.s8", "wgmma_s8", "wgmma.mma_async.m64n128k32.s32.s8.s8", Element::s8, true, true},
    {"wgmma.e4m3", "wgmma_e4m3", "wgmma.mma_async.m64n128k32.f32.e4m3.e4m3", Element::e4m3, true, true},
    {"wgmma.bf16", "wgmma_bf16", "wgmma.mma_async.m64n128k16.f32.bf16.bf16", Element::bf16, true, false},
    {"wgmma.f16", "wgmma_f16", "wgmma.mma_async.m64n128k16.f32.f16.f16", Element::f16, true, false},
};

int columns_of_instruction(Element element) { return element == Element::s8 || element == Element::e4m3 ? 32 : 16; }

template <class Shape>
Loop make_loop(const Row& row, bool hopper, int drain_columns) {
  return {.instruction = row.instruction,
          .ptx = row.ptx,
          .isa = hopper ? "sm_90a" : "sm_80",
          .element = row.element,
          .emulated = row.element == Element::e4m3 && !row.wgmma,
          .drain_columns = drain_columns,
          .function = drain_columns == 0 ? row.function : fmt::format("{}_drain_{}", row.function, drain_columns),
          .grid = {.blocks = 1, .threads = Shape::kThreads, .shared_bytes = Shape::kSharedBytes},
          .outputs = int64_t{Shape::kParts} * Shape::kRows * Shape::kTokens,
          .columns = int64_t{Shape::kSteps} * columns_of_instruction(row.element),
          .results_per_thread = Shape::kResults,
          .operand_bytes = Shape::kOperandBytes,
          .scales = kScaleGroups * Shape::kScales};
}

}  // namespace

std::vector<Loop> loops_for(int capability) {
  std::vector<Loop> loops;
  const bool hopper = capability == kHopper;
  if (!hopper && capability / 10 != 8) return loops;
  for (const Row& row : kRows) {
    if (!hopper && (row.wgmma || row.element == Element::e4m3)) continue;
    for (const int drain : {0, 32, 128, 256}) {
      if (drain != 0 && !row.drains) continue;
      loops.push_back(row.wgmma ? make_loop<WgmmaShape>(row, hopper, drain) : make_loop<MmaShape>(row, hopper, drain));
    }
  }
  return loops;
}

const char* lane_name(Element element) {
  constexpr const char* kNames[] = {"s8", "f8", "bf16", "f16"};
  return kNames[static_cast<size_t>(element)];
}

const char* element_name(Element element) {
  constexpr const char* kNames[] = {"s8", "e4m3", "bf16", "f16"};
  return kNames[static_cast<size_t>(element)];
}

std::vector<std::byte> operands_of(Element element, int bytes, bool ones) {
  std::vector<std::byte> operands(static_cast<size_t>(bytes));
  std::minstd_rand random(1);
  const auto draw = [&](uint32_t below) { return static_cast<uint32_t>(random() >> 8) % below; };
  for (size_t i = 0; i < operands.size(); i += 2) {
    uint32_t pair = 0;  // two bytes, or one value of 16 bits within [1/8, 2) and of either sign
    switch (element) {
      case Element::s8: pair = ones ? 0x0101 : draw(1 << 16); break;
      case Element::e4m3: pair = ones ? 0x3838 : draw(0x7F) | draw(2) << 7 | draw(0x7F) << 8 | draw(2) << 15; break;
      case Element::bf16: pair = ones ? 0x3F80 : draw(2) << 15 | (124 + draw(4)) << 7 | draw(1 << 7); break;
      case Element::f16: pair = ones ? 0x3C00 : draw(2) << 15 | (12 + draw(4)) << 10 | draw(1 << 10); break;
    }
    operands[i] = static_cast<std::byte>(pair & 0xFF);
    operands[i + 1] = static_cast<std::byte>(pair >> 8);
  }
  return operands;
}

}  // namespace octalane::cuda
