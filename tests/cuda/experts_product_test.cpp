// Products over experts on a device: each output has the bits of the expert's product alone. Outputs are poisoned
// before, and what lies around them must stay.
#include <gtest/gtest.h>

#include <bit>

#include "core/half.h"
#include "cuda/experts_on_device.h"
#include "cuda/kernel_weights.h"

namespace octalane::test {
namespace {

using cuda::Buffer;
using cuda::DeviceWeights;
using cuda::GemmKernel;

/// Weights of experts on the device: together, and each alone.
struct DeviceExperts {
  std::optional<DeviceWeights> all;
  std::vector<DeviceWeights> each;

  DeviceExperts(const GemmKernel& kernel, const WeightSpec& spec, int64_t count, int64_t rows, int64_t cols) {
    const Session& session = *OnDevice::get().session;
    std::vector<Packed> packed;
    std::vector<PackedView> views;
    std::vector<Restaged> made;
    for (int64_t e = 0; e < count; ++e) {
      packed.emplace_back(planes_for(kernel, spec, rows, cols, static_cast<uint32_t>(31 + e)),
                          scalar_gemm(kernel.staged).order);
    }
    for (const Packed& expert : packed) {
      views.push_back(expert.view());
      if (restaged(kernel.staged)) made.push_back(restage(expert.view(), kernel.staged, 1));
    }
    add(session, cuda::pack_experts(views, kernel.staged, made, 2), all);
    for (size_t e = 0; e < views.size(); ++e) {
      std::optional<DeviceWeights> one;
      add(session, cuda::pack_records(views[e], kernel.staged, made.empty() ? nullptr : &made[e], 2), one);
      if (one) each.push_back(std::move(*one));
    }
  }

 private:
  using Session = cuda::Session;
  static void add(const Session& session, Expected<cuda::Records> records, std::optional<DeviceWeights>& to) {
    ASSERT_TRUE(records) << records.error().message;
    auto uploaded = DeviceWeights::upload(session, std::move(*records));
    ASSERT_TRUE(uploaded) << uploaded.error().message;
    to.emplace(std::move(*uploaded));
  }
};

/// x times one expert, fp32 [tokens][rows] on the device.
Buffer multiply_alone(const GemmKernel& kernel, const DeviceWeights& weights, const cuda::Tokens& x) {
  OnDevice& on = OnDevice::get();
  const cuda::StagingForm form = cuda::staging_form(kernel.staged, weights.about().group);
  const Buffer workspace = poisoned(cuda::staging_bytes(form, x.tokens, x.cols));
  Buffer y = poisoned(x.tokens * weights.about().rows * 4);
  const auto staged = on.kernels->staging.stage(form, x, {workspace.address(), workspace.bytes()}, *on.stream);
  finish(staged);
  if (staged) {
    finish(on.products->multiply(kernel, weights, *staged, {y.address(), true, weights.about().rows}, *on.stream));
  }
  return y;
}

std::vector<const GemmKernel*> kernels_of_wgmma() {
  std::vector<const GemmKernel*> kernels;
  for (const GemmKernel& kernel : cuda::gemm_kernels()) {
    if (!kernel.by_mma()) kernels.push_back(&kernel);
  }
  return kernels;
}

class CudaExpertProduct : public testing::TestWithParam<const GemmKernel*> {
 protected:
  void SetUp() override {
    if (const std::string& missing = OnDevice::get().missing; !missing.empty()) GTEST_SKIP() << missing;
  }
  const GemmKernel& kernel() const { return *GetParam(); }
  WeightSpec spec() const {
    for (const NamedSpec& spec : device_specs()) {
      if (why_not(kernel(), spec.spec).empty()) return spec.spec;
    }
    ADD_FAILURE() << "no weights for " << name(kernel());
    return {};
  }
};

TEST_P(CudaExpertProduct, has_the_bits_of_each_expert_alone) {
  constexpr int64_t kExperts = 6, kRows = 200, kTokens = 150;
  OnDevice& on = OnDevice::get();
  const int64_t unit = std::max<int64_t>(kernel().form == cuda::Form::shift ? 64 : 32, column_unit(spec()));
  const int64_t cols = 1280 / unit * unit + unit;
  const DeviceExperts experts(kernel(), spec(), kExperts, kRows, cols);
  ASSERT_EQ(experts.each.size(), static_cast<size_t>(kExperts));
  std::vector<float> x;
  const Activations values = Activations::random(kTokens, cols, 22);
  for (int64_t m = 0; m < kTokens; ++m) x.insert(x.end(), &values.view()(m, 0), &values.view()(m, 0) + cols);
  const Buffer from = on.upload(x);
  const cuda::Tokens tokens{from.address(), true, kTokens, cols, cols};
  std::vector<std::vector<float>> alone;
  for (const DeviceWeights& weights : experts.each) {
    const Buffer y = multiply_alone(kernel(), weights, tokens);
    alone.push_back(part<float>(y, y.address(), static_cast<size_t>(kTokens * kRows)));
  }
  const cuda::StagingForm form = cuda::staging_form(kernel().staged, experts.all->about().group);
  for (const NamedChoices& choices : {uneven_choices(kTokens, kExperts), crowd({kTokens, 2, kExperts}, 5),
                                      random_choices({kTokens, 2, kExperts}, 23), crowd({1, 2, kExperts}, 3)}) {
    const HostRouting host = route_on_host(choices.choices, choices.shape);
    const Routed routed(choices);
    ASSERT_FALSE(HasFailure());
    const int64_t slots = routed.routing.slots;
    const Buffer workspace = poisoned(cuda::staging_bytes(form, slots, cols));
    const auto staged = on.kernels->staging.stage_gathered(form, tokens, routed.routing.gather(),
                                                           {workspace.address(), workspace.bytes()}, *on.stream);
    ASSERT_NO_FATAL_FAILURE(finish(staged));
    for (const bool f32 : {true, false}) {
      SCOPED_TRACE(testing::Message() << choices.name << (f32 ? ", fp32" : ", bfloat16"));
      const int64_t stride = f32 ? kRows + 3 : kRows + 8, width = f32 ? 4 : 2;
      const Buffer y = poisoned((slots + 2) * stride * width);
      const Status launched = on.products->multiply_experts(
          kernel(), *experts.all, *staged, routed.routing.tiles_of(kernel().tokens),
          {y.address() + static_cast<cuda::Address>(stride * width), f32, stride}, *on.stream);
      ASSERT_NO_FATAL_FAILURE(finish(launched));
      const auto bytes = part<std::byte>(y, y.address(), static_cast<size_t>(y.bytes()));
      const auto at = [&](int64_t slot, int64_t n) {
        uint32_t bits = 0;
        std::memcpy(&bits, &bytes[static_cast<size_t>(((slot + 1) * stride + n) * width)], static_cast<size_t>(width));
        return bits;
      };
      const uint32_t poison = f32 ? 0xFFFFFFFFu : 0xFFFFu;
      for (int64_t slot = -1; slot <= slots; ++slot) {
        const bool inside = slot >= 0 && slot < slots;
        const int32_t token = inside ? host.source[static_cast<size_t>(slot)] : -1;
        for (int64_t n = 0; n < stride; ++n) {
          if (n >= kRows || slot < 0 || slot >= host.slots || (f32 && token < 0)) {
            ASSERT_EQ(at(slot, n), poison) << "written outside: slot " << slot << ", " << n;
          }
          if (n >= kRows || token < 0) continue;
          size_t e = 0;
          while (slot >= host.ranges[e].end || slot < host.ranges[e].begin) ++e;
          const float want = alone[e][static_cast<size_t>(token * kRows + n)];
          const uint32_t bits = at(slot, n);
          const float got = f32 ? std::bit_cast<float>(bits) : bf16_to_f32(static_cast<uint16_t>(bits));
          ASSERT_TRUE(same_bits(got, f32 ? want : round_to_bf16(want)) && bits != poison)
              << "slot " << slot << " of expert " << e << ", row " << n << ": wanted " << want << ", got " << got;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Cuda, CudaExpertProduct, testing::ValuesIn(kernels_of_wgmma()),
                         [](const auto& test) { return std::string(test.param->function); });

/// Two layers of experts, captured once: in, out of the slots, and summed.
TEST_F(CudaExperts, run_in_a_graph_whatever_the_router_chooses) {
  OnDevice& on = OnDevice::get();
  constexpr int64_t kExperts = 6, kTokens = 40, kCols = 512, kInner = 256, kRows = 70;
  const cuda::RoutingShape shape{kTokens, 2, kExperts};
  for (const StagedType staged : {StagedType::bf16, StagedType::s8_row, StagedType::s8_group}) {
    SCOPED_TRACE(name(staged));
    const WeightSpec& spec = spec_named("u4_zero8_g32_f16").spec;
    const auto described = cuda::describe_records(spec, kInner, kCols, staged);
    const GemmKernel* const kernel = cuda::choose_expert_kernel(*described, staged, shape);
    ASSERT_NE(kernel, nullptr);
    const DeviceExperts first(*kernel, spec, kExperts, kInner, kCols), second(*kernel, spec, kExperts, kRows, kInner);
    const std::vector<float> x = random_values(static_cast<size_t>(kTokens * kCols), 27);
    const std::vector<float> weights = random_values(static_cast<size_t>(shape.choices()), 28);
    const Buffer from = on.upload(x), device_weights = on.upload(weights);
    const cuda::Tokens tokens{from.address(), true, kTokens, kCols, kCols};
    std::vector<std::vector<float>> alone;
    for (size_t e = 0; e < static_cast<size_t>(kExperts); ++e) {
      const Buffer inner = multiply_alone(*kernel, first.each[e], tokens);
      const Buffer outer = multiply_alone(*kernel, second.each[e], {inner.address(), true, kTokens, kInner, kInner});
      alone.push_back(part<float>(outer, outer.address(), static_cast<size_t>(kTokens * kRows)));
    }
    const cuda::StagingForm form = cuda::staging_form(staged, 32);
    const int64_t slots = cuda::most_slots(shape);
    const Buffer choices = poisoned(shape.choices() * 4), routing_room = poisoned(cuda::routing_bytes(shape));
    const Buffer first_room = poisoned(cuda::staging_bytes(form, slots, kCols));
    const Buffer second_room = poisoned(cuda::staging_bytes(form, slots, kInner));
    const Buffer inner = poisoned(slots * kInner * 4), outer = poisoned(slots * kRows * 4);
    const Buffer y = poisoned(kTokens * kRows * 4);
    const auto work = [&]() -> Status {
      const cuda::Stream& line = *on.stream;
      const auto routing =
          router().route(choices.address(), shape, {routing_room.address(), routing_room.bytes()}, line);
      if (!routing) return fail_with(routing);
      const cuda::ExpertTiles tiles = routing->tiles_of(kernel->tokens);
      const auto in = on.kernels->staging.stage_gathered(form, tokens, routing->gather(),
                                                         {first_room.address(), first_room.bytes()}, line);
      if (!in) return fail_with(in);
      const cuda::Output middle{inner.address(), true, kInner}, out{outer.address(), true, kRows};
      if (const Status s = on.products->multiply_experts(*kernel, *first.all, *in, tiles, middle, line); !s) return s;
      const auto again =
          on.kernels->staging.stage_gathered(form, {inner.address(), true, slots, kInner, kInner},
                                             routing->gather(true), {second_room.address(), second_room.bytes()}, line);
      if (!again) return fail_with(again);
      if (const Status s = on.products->multiply_experts(*kernel, *second.all, *again, tiles, out, line); !s) return s;
      return router().combine(*routing, out, device_weights.address(), kRows, {y.address(), true, kRows}, line);
    };
    const auto graph = cuda::Graph::capture(*on.stream, work);
    ASSERT_TRUE(graph) << graph.error().message;
    for (const NamedChoices& chosen :
         {random_choices(shape, 29), crowd(shape, 5), uneven_choices(kTokens, kExperts), random_choices(shape, 30)}) {
      SCOPED_TRACE(chosen.name);
      const HostRouting host = route_on_host(chosen.choices, shape);
      ASSERT_TRUE(on.session->copy_in(choices, std::as_bytes(std::span(chosen.choices))));
      ASSERT_NO_FATAL_FAILURE(finish(graph->launch(*on.stream)));
      const std::vector<float> wanted = combined(host, shape, weights, kRows, [&](int64_t choice, int64_t n) {
        const auto e = static_cast<size_t>(chosen.choices[static_cast<size_t>(choice)]);
        return alone[e][static_cast<size_t>(choice / shape.top_k * kRows + n)];
      });
      const auto got = part<float>(y, y.address(), wanted.size());
      for (size_t i = 0; i < wanted.size(); ++i) {
        ASSERT_TRUE(same_bits(got[i], wanted[i]))
            << "token " << i / kRows << ", row " << i % kRows << ": wanted " << wanted[i] << ", got " << got[i];
      }
    }
  }
}

}  // namespace
}  // namespace octalane::test
