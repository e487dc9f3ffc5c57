// The probe loops do the operations that their rows claim.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cstring>
#include <set>
#include <vector>

#include "core/half.h"
#include "kernels/amx_emulator.h"
#include "kernels/registry.h"
#include "probe/instructions.h"
#include "probe/operands.h"

namespace octalane {
namespace {

bool drains(ProbeKind kind) { return kind != ProbeKind::registers && kind != ProbeKind::loaded; }

/// The sum of everything in the output, as the accumulators that the loop has.
double sum_of(const ProbeLoop& loop, const std::byte* out) {
  const auto add_up = [&]<class T>(auto convert, T) {
    double sum = 0;
    for (int at = 0; at < kProbeOutBytes; at += static_cast<int>(sizeof(T))) {
      T value;
      std::memcpy(&value, out + at, sizeof value);
      sum += static_cast<double>(convert(value));
    }
    return sum;
  };
  const auto same = [](auto value) { return value; };
  if (std::string_view(loop.instruction).ends_with("ph"))
    return add_up([](uint16_t bits) { return f16_to_f32(bits); }, uint16_t{});
  if (loop.element == ProbeElement::s8 && !drains(loop.kind)) return add_up(same, int32_t{});
  return add_up(same, float{});
}

std::string row_name(const IsaTable& isa, const ProbeLoop& loop) {
  return fmt::format("{} {} {}", isa.name, loop.instruction, static_cast<int>(loop.kind));
}

/// Of this machine, and matrix tiles by software where it has none.
template <class Visit>
void for_each_loop_here(Visit visit) {
  for (const IsaTable* isa : isa_tables()) {
    const bool emulated = std::string_view(isa->name) == "amx" && test::emulate_amx();
    if (!isa->unavailable().empty() && !emulated) continue;
    for (const ProbeLoop& loop : isa->probes) {
      if (loop.available != nullptr && !loop.available()) continue;
      SCOPED_TRACE(row_name(*isa, loop));
      visit(loop);
    }
  }
}

TEST(ProbeLoops, do_exactly_the_operations_that_they_claim) {
  for_each_loop_here([](const ProbeLoop& loop) {
    for (const int64_t iterations : {0, 1, 7}) {
      const ProbeOperands operands = ProbeOperands::ones(loop.element);
      loop.run(operands.args(iterations));
      EXPECT_EQ(sum_of(loop, operands.out()), static_cast<double>(iterations) * loop.ops / 2) << iterations;
    }
  });
}

TEST(ProbeLoops, that_load_read_their_operands_in_the_loop) {
  for_each_loop_here([](const ProbeLoop& loop) {
    // Of every kilobyte from the first on, up to where the activations begin.
    int read = 0;
    for (int at = 0; at < kProbeOperandBytes; at += 1024) {
      const ProbeOperands operands = ProbeOperands::ones(loop.element);
      std::memset(operands.operands() + at, 0, 64);
      loop.run(operands.args(1));
      read += sum_of(loop, operands.out()) != loop.ops / 2 ? 1 : 0;
    }
    if (loop.kind == ProbeKind::registers) {
      EXPECT_LE(read, 8);
    } else {
      EXPECT_GE(read, 4);
    }
  });
}

TEST(ProbeLoops, every_instruction_has_both_peaks_and_integer_lanes_have_every_drain) {
  for (const IsaTable* isa : isa_tables()) {
    std::set<std::string> instructions, rows;
    for (const ProbeLoop& loop : isa->probes) {
      instructions.insert(loop.instruction);
      EXPECT_TRUE(rows.insert(row_name(*isa, loop)).second) << row_name(*isa, loop);
      EXPECT_EQ(loop.lane == Lane::s8, loop.element == ProbeElement::s8) << row_name(*isa, loop);
      EXPECT_FALSE(loop.element != ProbeElement::s8 && drains(loop.kind)) << "fp32 accumulators need no drain";
      EXPECT_GT(loop.ops, 0);
    }
    for (const ProbeLoop& loop : isa->probes) {
      for (int kind = 0; kind < (loop.element == ProbeElement::s8 ? 5 : 2); ++kind) {
        EXPECT_TRUE(rows.contains(fmt::format("{} {} {}", isa->name, loop.instruction, kind))) << loop.instruction;
      }
    }
  }
}

/// of_peak needs the peak of the instruction that bounds a kernel.
TEST(ProbeLoops, measure_the_instructions_of_the_kernels_beside_them) {
  for (const IsaTable* isa : isa_tables()) {
    for (const Kernel& kernel : isa->kernels) {
      if (std::string_view(isa->name) == "scalar") continue;
      bool found = false;
      for (const ProbeLoop& loop : isa->probes) found |= std::string_view(loop.instruction) == kernel.instruction;
      EXPECT_TRUE(found) << name(kernel) << ": " << kernel.instruction;
    }
  }
}

TEST(ProbeOperands, are_random_below_one_and_not_the_same_for_two_threads) {
  const ProbeOperands a(ProbeElement::f32, 1), b(ProbeElement::f32, 2);
  EXPECT_NE(std::memcmp(a.operands(), b.operands(), kProbeOperandBytes), 0);
  std::set<float> seen;
  for (int at = 0; at < kProbeOperandBytes; at += 4) {
    float value;
    std::memcpy(&value, a.operands() + at, sizeof value);
    EXPECT_LE(std::abs(value), 1);
    seen.insert(value);
  }
  EXPECT_GT(seen.size(), 4000u);
}

}  // namespace
}  // namespace octalane
