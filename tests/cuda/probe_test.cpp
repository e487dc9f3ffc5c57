// The table of loops and their operands; on a device, the probe itself.
#include "cuda/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <set>

#include "core/half.h"
#include "cuda/code.h"
#include "cuda/fake_driver.h"
#include "cuda/probe_loops.h"

namespace octalane::test {
namespace {

using cuda::Element;
using testing::HasSubstr;

TEST(CudaLoops, hopper_has_both_families_and_older_devices_mma_without_e4m3) {
  std::set<std::string> hopper, ampere;
  for (const cuda::Loop& loop : cuda::loops_for(90)) EXPECT_TRUE(hopper.insert(loop.function).second) << loop.function;
  for (const cuda::Loop& loop : cuda::loops_for(86)) ampere.insert(loop.function);
  EXPECT_EQ(hopper.size(), 20u);
  EXPECT_TRUE(hopper.contains("wgmma_s8_drain_128"));
  EXPECT_EQ(ampere, (std::set<std::string>{"mma_s8", "mma_s8_drain_32", "mma_s8_drain_128", "mma_s8_drain_256",
                                           "mma_bf16", "mma_f16"}));
  EXPECT_TRUE(cuda::loops_for(75).empty());
  EXPECT_TRUE(cuda::loops_for(100).empty());
}

TEST(CudaLoops, count_a_multiply_and_an_add_as_two_operations) {
  for (const cuda::Loop& loop : cuda::loops_for(90)) {
    // mma: 8 warps of 64 x 32, wgmma: 3 warpgroups of 64 x 128; 32 bytes of K an instruction.
    const bool wgmma = loop.function.starts_with("wgmma");
    const bool bytes = loop.element == Element::s8 || loop.element == Element::e4m3;
    const double outputs = wgmma ? 3 * 64 * 128 : 8 * 64 * 32, columns = (wgmma ? 16 : 8) * (bytes ? 32 : 16);
    EXPECT_EQ(loop.ops(), 2 * outputs * columns) << loop.function;
    EXPECT_EQ(static_cast<double>(loop.grid.threads * loop.results_per_thread), outputs) << loop.function;
    EXPECT_EQ(loop.emulated, loop.element == Element::e4m3 && !wgmma) << loop.function;
  }
}

TEST(CudaLoops, operands_are_one_or_finite_and_of_both_signs) {
  for (const Element element : {Element::bf16, Element::f16}) {
    for (const bool ones : {true, false}) {
      int negative = 0;
      const std::vector<std::byte> bytes = cuda::operands_of(element, 4096, ones);
      for (size_t i = 0; i < bytes.size(); i += 2) {
        const auto bits =
            static_cast<uint16_t>(static_cast<unsigned>(bytes[i]) | static_cast<unsigned>(bytes[i + 1]) << 8);
        const float value = element == Element::bf16 ? bf16_to_f32(bits) : f16_to_f32(bits);
        EXPECT_TRUE(ones ? value == 1 : std::abs(value) >= 0.125f && std::abs(value) < 2) << value;
        negative += value < 0;
      }
      EXPECT_EQ(negative > 500 && negative < 1500, !ones);
    }
  }
  std::set<std::byte> seen;
  for (const std::byte byte : cuda::operands_of(Element::e4m3, 1 << 16, false)) seen.insert(byte);
  EXPECT_EQ(seen.size(), 254u);
  EXPECT_FALSE(seen.contains(std::byte{0x7F}) || seen.contains(std::byte{0xFF})) << "those are NaN";
  for (const std::byte byte : cuda::operands_of(Element::e4m3, 64, true)) EXPECT_EQ(byte, std::byte{0x38});
  for (const std::byte byte : cuda::operands_of(Element::s8, 64, true)) EXPECT_EQ(byte, std::byte{1});
}

TEST(CudaProbe, says_why_it_cannot_before_it_asks_the_device) {
  const cuda::DriverApi api = fake_driver();
  cuda::DeviceInfo turing{.name = "Old", .capability = 75};
  const auto result = cuda::probe(api, turing, {});
  ASSERT_FALSE(result);
  EXPECT_THAT(result.error().message,
              HasSubstr(cuda::probe_code().empty() ? "built without nvcc"
                                                   : "Old: wanted compute capability 8.x or 9.0, got 7.5"));
}

TEST(CudaProbe, measures_what_it_has_checked) {
  const auto api = cuda::load_driver();
  if (!api) GTEST_SKIP() << api.error().message;
  const auto devices = cuda::list_devices(*api);
  ASSERT_TRUE(devices) << devices.error().message;
  if (devices->empty()) GTEST_SKIP() << "no device";
  if (const std::string why = cuda::why_not(devices->front()); !why.empty()) GTEST_SKIP() << why;
  const auto result = cuda::probe(*api, devices->front(), {.repeats = 2, .sample_seconds = 1e-3});
  ASSERT_TRUE(result) << result.error().message;
  EXPECT_GE(result->checked_loops, 6);
  for (const cuda::InstructionRate& rate : result->rates) {
    ASSERT_EQ(rate.pure.tops.size(), 2u);
    EXPECT_GT(rate.pure.tops[0], 0) << rate.instruction;
    for (const auto& [columns, drained] : rate.drained) EXPECT_EQ(drained.tops.size(), 2u) << columns;
  }
}

}  // namespace
}  // namespace octalane::test
