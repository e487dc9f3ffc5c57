// Measuring: every figure is there, and no figure is judged.
#include <gtest/gtest.h>

#include <set>

#include "kernels/registry.h"
#include "probe/instructions.h"
#include "probe/memory.h"
#include "probe/timing.h"

namespace octalane {
namespace {

std::vector<const IsaTable*> isas_here() {
  std::vector<const IsaTable*> here;
  for (const IsaTable* isa : isa_tables()) {
    if (isa->unavailable().empty()) here.push_back(isa);
  }
  return here;
}

void expect_samples(const LoopRate& rate, size_t count) {
  EXPECT_EQ(rate.tops.size(), count);
  for (const double tops : rate.tops) EXPECT_GT(tops, 0);
  EXPECT_GT(rate.median(), 0);
}

TEST(Probe, measures_every_instruction_on_every_number_of_threads) {
  const std::vector<InstructionRate> rates =
      measure_instructions(isas_here(), {.threads = {1, 3}, .repeats = 2, .sample_seconds = 1e-4});
  std::set<std::string> wanted, got;
  for (const IsaTable* isa : isas_here()) {
    for (const ProbeLoop& loop : isa->probes) wanted.insert(std::string(isa->name) + " " + loop.instruction);
  }
  for (const InstructionRate& rate : rates) {
    got.insert(rate.isa + " " + rate.instruction);
    expect_samples(rate.registers, 2);
    expect_samples(rate.loaded, 2);
    EXPECT_EQ(rate.drain_32.has_value(), rate.element == ProbeElement::s8) << rate.instruction;
    if (rate.drain_row) expect_samples(*rate.drain_row, 2);
  }
  EXPECT_EQ(got, wanted);
  EXPECT_EQ(rates.size(), 2 * wanted.size());
}

TEST(Probe, measures_one_instruction_when_asked_and_stops_when_told) {
  const InstructionOptions options{.repeats = 1, .sample_seconds = 1e-4, .instruction = "vfmadd231ps"};
  for (const InstructionRate& rate : measure_instructions(isas_here(), options)) {
    EXPECT_EQ(rate.instruction, "vfmadd231ps");
  }
  EXPECT_TRUE(measure_instructions(isas_here(), options, [](int, int) { return false; }).empty());
}

TEST(Probe, memory_sizes_go_from_l1_to_beyond_the_last_cache) {
  const MemoryOptions options{
      .threads = {1, 2}, .repeats = 1, .sample_seconds = 1e-4, .last_level_cache_bytes = 1 << 20};
  const std::vector<MemoryRate> rates = measure_memory(isas_here(), options);
  ASSERT_EQ(rates.size(), 2 * 5u);  // 16 KiB, 64 KiB, 256 KiB, 1 MiB, 2 MiB
  EXPECT_EQ(rates.front().bytes, 16 << 10);
  EXPECT_EQ(rates.back().bytes, 2 << 20);
  for (const MemoryRate& rate : rates) EXPECT_GT(rate.median(), 0);
}

TEST(Probe, readers_look_at_every_line) {
  std::vector<std::byte> storage((4 << 10) + 64);
  std::byte* data = storage.data() + (64 - reinterpret_cast<uintptr_t>(storage.data()) % 64) % 64;
  for (const IsaTable* isa : isas_here()) {
    if (isa->read == nullptr) continue;
    EXPECT_EQ(isa->read(data, 4096), 0u) << isa->name;
    for (int at = 0; at < 4096; at += 8) {
      data[at + 5] = std::byte{1};
      EXPECT_NE(isa->read(data, 4096), 0u) << isa->name << " at " << at;
      data[at + 5] = std::byte{0};
    }
  }
}

TEST(Timing, a_rate_counts_the_work_of_all_threads) {
  // Each unit waits for 100 us of the clock, so one thread does 10,000 a second and three do 30,000.
  const auto wait = [](int, int64_t count) {
    for (const double end = probe_seconds() + 1e-4 * static_cast<double>(count); probe_seconds() < end;) {
    }
  };
  EXPECT_LE(sample_rate(1, 0.005, wait).units_per_second, 10'000 * 1.001);
  EXPECT_GT(sample_rate(3, 0.005, wait).units_per_second, sample_rate(1, 0.005, wait).units_per_second);
  EXPECT_EQ(median_of({5, 1, 9}), 5);
  EXPECT_EQ(median_of({4, 2}), 3);
}

}  // namespace
}  // namespace octalane
