// Which kernel of a device multiplies, from made-up rates; and what each kind of weights may run. No device takes part.
#include "cuda/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda/binding.h"
#include "kernels/all_kernels.h"

namespace octalane::test {
namespace {

using cuda::Candidate;
using cuda::DeviceInfo;
using cuda::Problem;
using cuda::Rates;
using testing::AllOf;
using testing::Contains;
using testing::Field;
using testing::HasSubstr;

const DeviceInfo kDevice{.name = "Fake H200",
                         .capability = 90,
                         .multiprocessors = 100,
                         .clock_mhz = 2000,
                         .memory_clock_mhz = 3000,
                         .memory_bus_bits = 6000,
                         .shared_bytes_per_block = 232448};

Candidate gemv(const char* name, int tokens) {
  return {.kernel = name, .tile_tokens = tokens, .writes_bf16 = false, .weight_bytes = 4'000'000};
}
Candidate gemm(const char* name, StagedType staged, int rows, int tokens) {
  return {.kernel = name, .staged = staged, .tile_rows = rows, .tile_tokens = tokens, .weight_bytes = 4'000'000};
}

const std::vector<Candidate> kCandidates{
    gemv("gemv8", 8),
    gemv("gemv16", 16),
    gemm("wide", StagedType::bf16, 128, 256),
    gemm("narrow", StagedType::bf16, 64, 64),
    gemm("s8", StagedType::s8_row, 128, 256),
};

/// gemv: 1 us and 4 us of bytes; panels of a wide tile 2 us, of a narrow one 0.4 us, of s8 1 us.
Rates made_up() {
  return {.memory_bytes_per_second = 4e12,
          .kernels = {{"gemv8", {.bytes_per_second = 1e12, .fixed_seconds = 1e-6}},
                      {"gemv16", {.bytes_per_second = 0.8e12, .fixed_seconds = 1e-6}},
                      {"wide", {.panel_seconds = 2e-6, .fixed_seconds = 2e-6}},
                      {"narrow", {.panel_seconds = 0.4e-6, .fixed_seconds = 2e-6}},
                      {"s8", {.panel_seconds = 1e-6, .fixed_seconds = 3e-6}}}};
}

std::string winner(const Problem& problem, const Rates& rates, std::vector<Candidate> candidates = kCandidates) {
  const auto plan = cuda::choose(problem, candidates, kDevice, &rates);
  if (!plan) return plan.error().message;
  EXPECT_TRUE(plan->measured);
  EXPECT_EQ(cuda::best(problem, candidates, kDevice, &rates), plan->choice);
  EXPECT_EQ(candidates[plan->choice].kernel, plan->kernel);
  return plan->kernel;
}

std::vector<Candidate> without_s8() {
  std::vector<Candidate> candidates = kCandidates;
  candidates.back().refusal = "lossy";
  return candidates;
}

TEST(CudaPlan, of_few_tokens_reads_weights_once_and_twice_where_that_is_faster) {
  const Problem few{.tokens = 8, .rows = 4096, .cols = 4096};
  EXPECT_EQ(winner(few, made_up()), "gemv8");
  Problem more = few;
  more.tokens = 9;
  EXPECT_EQ(winner(more, made_up()), "gemv16") << "6 us, against two times 5";
  Rates slow = made_up();
  slow.kernels["gemv16"].bytes_per_second = 0.3e12;
  EXPECT_EQ(winner(more, slow), "gemv8");
}

TEST(CudaPlan, of_many_tokens_counts_whole_waves_of_tiles) {
  const std::vector<Candidate> exact = without_s8();
  // 32 wide tiles of 128 x 256, or 64 x 4 narrow ones: one wave of 2 us a panel against three of 0.4.
  const Problem one_wave{.tokens = 256, .rows = 4096, .cols = 4096};
  EXPECT_EQ(winner(one_wave, made_up(), exact), "narrow");
  // 96 wide tiles are still one wave, 768 narrow ones are eight.
  const Problem three{.tokens = 768, .rows = 4096, .cols = 4096};
  EXPECT_EQ(winner(three, made_up(), exact), "wide");
  // 128 wide tiles are two waves and 1024 narrow ones eleven: 4 us against 4.4; with 2.3 us a panel 4.6.
  const Problem four{.tokens = 1024, .rows = 4096, .cols = 4096};
  EXPECT_EQ(winner(four, made_up(), exact), "wide");
  Rates slower = made_up();
  slower.kernels["wide"].panel_seconds = 2.3e-6;
  EXPECT_EQ(winner(four, slower, exact), "narrow");
}

TEST(CudaPlan, takes_a_lossy_lane_where_it_may_and_is_faster) {
  const Problem many{.tokens = 768, .rows = 4096, .cols = 4096};
  EXPECT_EQ(winner(many, made_up()), "s8");
  EXPECT_EQ(winner(many, made_up(), without_s8()), "wide");
  Rates slow = made_up();
  slow.kernels["s8"].fixed_seconds = 1e-3;
  EXPECT_EQ(winner(many, slow), "wide");
}

TEST(CudaPlan, is_no_faster_than_the_weights_come) {
  const Candidate wide = kCandidates[2];
  const Problem small{.tokens = 17, .rows = 128, .cols = 128};
  Rates rates = made_up();
  const auto seconds = [&] { return cuda::measured_seconds(wide, small, kDevice, rates, rates.kernels["wide"]); };
  EXPECT_DOUBLE_EQ(seconds(), 2e-6 + 2e-6);
  rates.memory_bytes_per_second = 4e11;
  EXPECT_DOUBLE_EQ(seconds(), 2e-6 + 1e-5);
  rates.memory_bytes_per_second = 0;  // nominal: 4.5e12
  EXPECT_DOUBLE_EQ(seconds(), 2e-6 + 2e-6);
}

TEST(CudaPlan, estimates_seconds_of_a_product) {
  const Rates rates = made_up();
  const auto few = cuda::choose({.tokens = 20, .rows = 4096, .cols = 512}, {&kCandidates[0], 1}, kDevice, &rates);
  ASSERT_TRUE(few);
  EXPECT_DOUBLE_EQ(few->seconds, 3 * (1e-6 + 4e-6));
  const auto many = cuda::choose({.tokens = 257, .rows = 8191, .cols = 513}, {&kCandidates[2], 1}, kDevice, &rates);
  ASSERT_TRUE(many);
  EXPECT_DOUBLE_EQ(many->seconds, 2e-6 + 2 * 5 * 2e-6) << "128 tiles on 100 multiprocessors, 5 panels";
}

TEST(CudaPlan, is_no_faster_than_the_power_limit_allows) {
  const Candidate wide = kCandidates[2];
  const cuda::KernelRate rate{.panel_seconds = 2e-6, .power_seconds = 2.5e-6, .fixed_seconds = 3e-6};
  const auto seconds = [&](int64_t tokens) {
    return cuda::measured_seconds(wide, {.tokens = tokens, .rows = 3200, .cols = 128}, kDevice, made_up(), rate);
  };
  EXPECT_DOUBLE_EQ(seconds(256), 3e-6 + 2e-6) << "25 tiles on 100 multiprocessors";
  EXPECT_DOUBLE_EQ(seconds(5 * 256), 3e-6 + 2 * 2e-6) << "125 tiles: two waves, mostly idle";
  EXPECT_DOUBLE_EQ(seconds(80 * 256), 20 * 2.5e-6) << "no wave is idle";
}

TEST(CudaPlan, takes_a_kernel_without_a_rate_for_as_slow_as_its_kin) {
  const Problem many{.tokens = 768, .rows = 4096, .cols = 4096};
  const auto plan = [&](const Rates* rates, const Problem& problem, const std::vector<Candidate>& candidates) {
    const auto chosen = cuda::choose(problem, candidates, kDevice, rates);
    EXPECT_TRUE(chosen) << chosen.error().message;
    return *chosen;
  };
  const cuda::Plan nominal = plan(nullptr, many, kCandidates);
  EXPECT_FALSE(nominal.measured);
  EXPECT_EQ(nominal.kernel, "s8") << "twice the multiplies a clock";
  EXPECT_EQ(nominal.reason, "least estimated time for 768 tokens, from nominal rates");
  EXPECT_DOUBLE_EQ(nominal.seconds, cuda::nominal_seconds(kCandidates[4], many, kDevice));
  EXPECT_EQ(plan(nullptr, {.tokens = 1, .rows = 4096, .cols = 4096}, kCandidates).kernel, "gemv8");

  Rates rates = made_up();
  EXPECT_EQ(plan(&rates, many, kCandidates).reason, "least estimated time for 768 tokens, from measured rates");
  // None of s8 has a rate, so it is as many times slower than nominal as the worst of all.
  rates.kernels.erase("s8");
  const auto ratio = [&](size_t i) {
    return cuda::measured_seconds(kCandidates[i], many, kDevice, rates, rates.kernels.at(kCandidates[i].kernel)) /
           cuda::nominal_seconds(kCandidates[i], many, kDevice);
  };
  const cuda::Plan guessed = plan(&rates, many, {kCandidates[2], kCandidates[4]});
  EXPECT_EQ(guessed.kernel, "s8");
  EXPECT_FALSE(guessed.measured);
  EXPECT_DOUBLE_EQ(guessed.seconds, ratio(2) * cuda::nominal_seconds(kCandidates[4], many, kDevice));
  // The wide one counts as the narrow one, of its lane, which cannot run here; not as s8, though that is worse.
  rates = made_up();
  rates.kernels.erase("wide");
  rates.kernels["s8"].panel_seconds = 1;
  std::vector<Candidate> candidates = kCandidates;
  candidates[3].refusal = "of other codes";
  const cuda::Plan as_kin = plan(&rates, many, candidates);
  EXPECT_EQ(as_kin.kernel, "wide");
  EXPECT_DOUBLE_EQ(as_kin.seconds, ratio(3) * cuda::nominal_seconds(kCandidates[2], many, kDevice));
}

TEST(CudaPlan, counts_drains_in_nominal_rates) {
  const Problem many{.tokens = 768, .rows = 4096, .cols = 4096};
  const auto seconds = [&](StagedType staged, int group) {
    Candidate candidate = gemm("kernel", staged, 128, 128);
    candidate.group = group;
    return cuda::nominal_seconds(candidate, many, kDevice);
  };
  const double row = seconds(StagedType::s8_row, 32);
  EXPECT_LT(row, seconds(StagedType::s8_xblock, 32));
  EXPECT_LT(seconds(StagedType::s8_xblock, 32), seconds(StagedType::s8_group, 64));
  EXPECT_LT(seconds(StagedType::s8_group, 64), seconds(StagedType::s8_group, 32));
  EXPECT_LT(row, seconds(StagedType::bf16, 32));
}

TEST(CudaPlan, takes_mma_sync_for_slower_than_wgmma_by_nominal_rates) {
  const Problem many{.tokens = 768, .rows = 4096, .cols = 4096};
  const auto seconds = [&](StagedType staged, bool by_mma, int capability) {
    Candidate candidate = gemm("kernel", staged, 128, 128);
    candidate.by_mma = by_mma;
    DeviceInfo device = kDevice;
    device.capability = capability;
    return cuda::nominal_seconds(candidate, many, device) - 4e-6;
  };
  for (const StagedType staged : {StagedType::bf16, StagedType::s8_row}) {
    const double ratio = seconds(staged, true, 90) / seconds(staged, false, 90);
    EXPECT_GT(ratio, 1.4);
    EXPECT_LT(ratio, 1.6);
    EXPECT_GT(seconds(staged, true, 80), seconds(staged, true, 90));
    EXPECT_DOUBLE_EQ(seconds(staged, true, 86), 2 * seconds(staged, true, 80));
  }
  EXPECT_DOUBLE_EQ(seconds(StagedType::bf16, true, 80), 2 * seconds(StagedType::s8_row, true, 80));
}

TEST(CudaPlan, takes_mma_sync_beside_wgmma_only_by_its_rate) {
  const Problem few{.tokens = 17, .rows = 4096, .cols = 4096};
  std::vector<Candidate> candidates{gemm("wgmma", StagedType::s8_group, 128, 128),
                                    gemm("mma", StagedType::s8_group, 128, 64)};
  candidates[1].by_mma = true;
  ASSERT_LT(cuda::nominal_seconds(candidates[1], few, kDevice), cuda::nominal_seconds(candidates[0], few, kDevice));
  const auto kernel = [&](const Rates* rates) { return cuda::choose(few, candidates, kDevice, rates)->kernel; };
  EXPECT_EQ(kernel(nullptr), "wgmma");
  EXPECT_EQ(cuda::choose(few, candidates, kDevice, nullptr)->refused[0].why,
            "on mma.sync, and not measured to be faster than wgmma");
  Rates rates{.memory_bytes_per_second = 4e12, .kernels = {{"wgmma", {.panel_seconds = 1e-6}}}};
  EXPECT_EQ(kernel(&rates), "wgmma");
  rates.kernels["mma"].panel_seconds = 0.9e-6;
  EXPECT_EQ(kernel(&rates), "mma");
  rates.kernels.erase("mma");
  candidates[0].refusal = "of another device";
  EXPECT_EQ(kernel(nullptr), "mma");
}

TEST(CudaPlan, says_why_each_other_kernel_lost) {
  const Rates rates = made_up();
  const auto plan =
      cuda::choose({.tokens = 768, .rows = 4096, .cols = 4096, .f32_output = false}, without_s8(), kDevice, &rates);
  ASSERT_TRUE(plan);
  const auto lost = [](const char* kernel, const auto& why) {
    return AllOf(Field(&cuda::Refusal::kernel, kernel), Field(&cuda::Refusal::why, why));
  };
  EXPECT_EQ(plan->refused.size(), 4u);
  EXPECT_THAT(plan->refused, Contains(lost("gemv8", "writes fp32 only")));
  EXPECT_THAT(plan->refused, Contains(lost("s8", "lossy")));
  EXPECT_THAT(plan->refused, Contains(lost("narrow", "estimated 1.58x the time of the winner")));
  const auto few = cuda::choose({.tokens = 8, .rows = 4096, .cols = 4096}, kCandidates, kDevice, &rates);
  EXPECT_THAT(few->refused, Contains(lost("gemv16", "estimated 1.20x the time of the winner")));
  const auto none =
      cuda::choose({.tokens = 1, .rows = 2, .cols = 3, .f32_output = false}, {&kCandidates[1], 1}, kDevice, &rates);
  ASSERT_FALSE(none);
  EXPECT_EQ(none.error().message, "no kernel serves 2 rows x 3 columns: gemv16: writes fp32 only");
}

std::string refusal(const char* spec, const char* kernel, const cuda::LaneOptions& lanes,
                    StagedSet encodings = cuda::kEncodings, const DeviceInfo& device = kDevice) {
  for (const Candidate& candidate : cuda::list_candidates(spec_named(spec).spec, 256, 1024, lanes, encodings, device)) {
    if (candidate.kernel == kernel) return candidate.refusal;
  }
  ADD_FAILURE() << "no kernel " << kernel;
  return "";
}

/// The names of a lane's kernels that may run.
std::string running(const char* spec, StagedType staged, const cuda::LaneOptions& lanes) {
  std::string names;
  for (const Candidate& candidate :
       cuda::list_candidates(spec_named(spec).spec, 256, 1024, lanes, cuda::kEncodings, kDevice)) {
    if (candidate.staged == staged && candidate.refusal.empty()) names += candidate.kernel + " ";
  }
  return names;
}

TEST(CudaCandidates, are_of_the_stock_lane_unless_others_are_allowed_or_asked_for) {
  constexpr const char* kSpec = "u4_zero8_g32_f16";
  constexpr StagedType kRow = StagedType::s8_row;
  EXPECT_THAT(running(kSpec, StagedType::bf16, {}), AllOf(HasSubstr("bf16_gemv"), HasSubstr("bf16_gemm")));
  EXPECT_EQ(running(kSpec, kRow, {}), "");
  EXPECT_THAT(running(kSpec, kRow, {.lossy = {kRow}}), HasSubstr("s8.row_gemm"));
  EXPECT_THAT(running(kSpec, StagedType::bf16, {.lossy = {kRow}}), HasSubstr("bf16_gemv"));
  EXPECT_THAT(running(kSpec, kRow, {.forced = kRow}), HasSubstr("s8.row_gemm"));
  EXPECT_EQ(running(kSpec, StagedType::bf16, {.forced = kRow}), "");
  EXPECT_EQ(running(kSpec, StagedType::s8_group, {.lossy = {kRow}}), "");
  EXPECT_THAT(running(kSpec, StagedType::s8_group, {.lossy = {StagedType::s8_group}}), HasSubstr("s8.group_gemm"));
}

TEST(CudaCandidates, say_why_they_may_not_run) {
  constexpr const char* kSpec = "u4_zero8_g32_f16";
  const std::string row = cuda::name(cuda::gemm_kernels()[0]);
  ASSERT_EQ(cuda::gemm_kernels()[0].staged, StagedType::s8_row);
  ASSERT_EQ(cuda::gemm_kernels()[0].words, 2);
  const std::string few = cuda::name(cuda::gemv_kernels()[2]);
  EXPECT_EQ(refusal(kSpec, row.c_str(), {}), "lossy, and not among the lanes that are allowed");
  EXPECT_EQ(refusal(kSpec, row.c_str(), {.forced = StagedType::bf16}), "lane bf16 was asked for");
  EXPECT_EQ(refusal(kSpec, few.c_str(), {.forced = StagedType::s8_row}), "lane s8.row was asked for");
  const cuda::LaneOptions lossy{.lossy = {StagedType::s8_row}};
  EXPECT_EQ(refusal(kSpec, row.c_str(), lossy), "");
  EXPECT_EQ(refusal(kSpec, row.c_str(), lossy, {StagedType::s8_block}),
            "weights were bound without re-encoding for s8.row");
  DeviceInfo other = kDevice;
  other.capability = 80;
  EXPECT_EQ(refusal(kSpec, row.c_str(), lossy, cuda::kEncodings, other), "wanted compute capability 9.0, got 8.0");
  EXPECT_EQ(refusal("u8_zero128_g32_f16", row.c_str(), lossy), "codes of 8 bits are not re-encoded");
  EXPECT_EQ(refusal("u4_g128_f32_bias", few.c_str(), {}), "scales of 32 bits are not served exactly");
  EXPECT_EQ(refusal("m2v8_g128", few.c_str(), {}), "levels that are no integers are not served");
}

/// Of every kind of weights and lane that kernels on wgmma serve, those on mma.sync do, but the lanes of f8 and codes
/// of E4M3; and where both can run, none of theirs is chosen before it has a rate.
TEST(CudaCandidates, on_mma_sync_serve_where_there_is_no_wgmma_alone) {
  DeviceInfo ampere = kDevice;
  ampere.capability = 86;
  ampere.shared_bytes_per_block = 99 * 1024;
  int served = 0;
  for (const NamedSpec& spec : all_specs()) {
    for (const StagedTypeInfo& lane : kStagedTypes) {
      SCOPED_TRACE(testing::Message() << spec.name << " " << lane.name);
      for (const int64_t tokens : {17, 64, 128, 500, 4096}) {
        const auto plan = [&](const DeviceInfo& device) {
          return cuda::choose(
              {tokens, 4096, 4096},
              cuda::list_candidates(spec.spec, 4096, 4096, {.forced = lane.type}, cuda::kEncodings, device), device,
              nullptr);
        };
        const auto hopper = plan(kDevice), other = plan(ampere);
        if (lane.lane == Lane::f8 || spec.spec.code.map == CodeMap::e4m3) {
          EXPECT_FALSE(other);
          continue;
        }
        ASSERT_EQ(hopper.has_value(), other.has_value()) << (hopper ? other : hopper).error().message;
        if (!hopper) continue;
        EXPECT_EQ(hopper->kernel.find("_mma-"), std::string::npos) << hopper->kernel << " for " << tokens;
        EXPECT_TRUE(tokens < 128 || other->kernel.find("_mma-") != std::string::npos) << other->kernel;
        ++served;
      }
    }
  }
  EXPECT_GT(served, 100);
}

TEST(CudaCandidates, on_mma_sync_fit_every_device_of_compute_capability_8) {
  int kernels = 0;
  for (const cuda::GemmKernel& kernel : cuda::gemm_kernels()) {
    if (!kernel.by_mma()) continue;
    EXPECT_LE(kernel.shared_bytes, 99 * 1024) << cuda::name(kernel);
    ++kernels;
  }
  EXPECT_GT(kernels, 0);
}

TEST(CudaBinding, keeps_weights_as_they_are_and_the_re_encoding_that_many_tokens_would_take) {
  const WeightSpec& spec = spec_named("u4_zero8_g32_f16").spec;
  const auto bound = [&](const cuda::LaneOptions& lanes, StagedSet encodings = cuda::kEncodings) {
    const auto binding = cuda::plan_binding(spec, 4096, 4096, lanes, encodings, kDevice, nullptr);
    EXPECT_TRUE(binding) << binding.error().message;
    return *binding;
  };
  EXPECT_TRUE(bound({}).exact);
  EXPECT_EQ(bound({}).encoding, std::nullopt);
  const cuda::LaneOptions several{.lossy = {StagedType::s8_xblock, StagedType::s8_block}};
  EXPECT_TRUE(bound(several).exact);
  EXPECT_EQ(bound(several).encoding, StagedType::s8_row) << "s8.xblock's";
  EXPECT_EQ(bound(several, {StagedType::s8_block}).encoding, StagedType::s8_block);
  EXPECT_FALSE(bound({.forced = StagedType::s8_block}).exact);
  EXPECT_EQ(bound({.forced = StagedType::s8_block}).encoding, StagedType::s8_block);
  EXPECT_EQ(bound({.forced = StagedType::s8_group}).encoding, std::nullopt);
  const auto none = cuda::plan_binding(spec_named("m2v8_g128").spec, 256, 256, {}, cuda::kEncodings, kDevice, nullptr);
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, AllOf(HasSubstr("no kernel serves 256 rows x 256 columns: "),
                                          HasSubstr("levels that are no integers are not served")));
}

}  // namespace
}  // namespace octalane::test
