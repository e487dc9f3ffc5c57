// Products over experts on a made-up driver: what is launched, and what is refused.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>

#include "cuda/activation_args.h"
#include "cuda/code.h"
#include "cuda/experts.h"
#include "cuda/fake_driver.h"
#include "cuda/gemv.h"
#include "cuda/host_routing.h"
#include "cuda/host_tokens.h"
#include "kernels/all_kernels.h"

namespace octalane::test {
namespace {

using cuda::RoutingShape;
using cuda::Workspace;
using testing::HasSubstr;

class FakeExperts : public testing::Test {
 protected:
  void SetUp() override {
    if (cuda::experts_code().empty()) GTEST_SKIP() << "built without nvcc";
    session_.emplace(std::move(*cuda::Session::open(
        api_, {.name = "Fake H200", .capability = 90, .multiprocessors = 132, .shared_bytes_per_block = 232448})));
    auto router = cuda::ExpertRouter::load(*session_);
    ASSERT_TRUE(router) << router.error().message;
    router_.emplace(std::move(*router));
    auto products = cuda::Products::load(*session_);
    ASSERT_TRUE(products) << products.error().message;
    products_.emplace(std::move(*products));
    auto staging = cuda::Staging::load(*session_);
    ASSERT_TRUE(staging) << staging.error().message;
    staging_.emplace(std::move(*staging));
    stream_.emplace(std::move(*session_->stream()));
  }
  /// Weights of this many experts, 200 x 512.
  cuda::DeviceWeights weights(int64_t count) {
    const Packed packed(random_planes(spec_named("u4_zero8_g32_f16").spec, 200, 512, 61),
                        scalar_gemm(StagedType::bf16).order);
    const std::vector<PackedView> views(static_cast<size_t>(count), packed.view());
    auto uploaded = cuda::DeviceWeights::upload(*session_, *cuda::pack_experts(views, StagedType::bf16, {}, 1));
    EXPECT_TRUE(uploaded) << uploaded.error().message;
    return std::move(*uploaded);
  }
  cuda::DriverApi api_ = fake_driver();
  std::optional<cuda::Session> session_;
  std::optional<cuda::ExpertRouter> router_;
  std::optional<cuda::Products> products_;
  std::optional<cuda::Staging> staging_;
  std::optional<cuda::Stream> stream_;
};

/// A kernel made of the host's words writes into the memory that the workspace's parts are.
TEST_F(FakeExperts, have_parts_of_a_workspace_that_do_not_touch) {
  for (const NamedChoices& choices : {random_choices({5, 2, 6}, 1), crowd({150, 2, 3}, 1), uneven_choices(70, 9)}) {
    const RoutingShape& shape = choices.shape;
    const int64_t bytes = cuda::routing_bytes(shape);
    std::vector<std::byte> memory(static_cast<size_t>(bytes) + 512, std::byte{0xFF});
    const auto address = (reinterpret_cast<uintptr_t>(memory.data()) + 255) / 256 * 256;
    const HostRouting wanted = route_on_host(choices.choices, shape);
    const auto put = [](auto* to, const auto& from) { std::ranges::copy(from, to); };
    fake_work().kernel = [&](const std::string& function, void** arguments) {
      EXPECT_EQ(function, "route");
      cuda::RouteArgs args;
      std::memcpy(&args, arguments[0], sizeof args);
      EXPECT_EQ(args.slots, cuda::most_slots(shape));
      EXPECT_EQ(args.choices, shape.choices());
      put(args.source, wanted.source);
      put(args.slot_of, wanted.slot_of);
      put(args.ranges, wanted.ranges);
      for (size_t size = 0; size < cuda::kTileSizes; ++size) {
        put(args.tiles[size], wanted.tiles[size]);
        args.counts->tiles[size] = static_cast<int32_t>(wanted.tiles[size].size());
      }
      args.counts->slots = wanted.slots;
      args.counts->left_out = wanted.left_out;
      return 0.0;
    };
    const auto routing = router_->route(4096, shape, {address, bytes}, *stream_);
    ASSERT_TRUE(routing) << routing.error().message;
    const auto same = [&](cuda::Address at, const void* from, size_t count) {
      EXPECT_GE(at, address);
      EXPECT_LE(at + count, address + static_cast<cuda::Address>(bytes));
      EXPECT_EQ(at % 256, 0u);
      return count == 0 || std::memcmp(reinterpret_cast<const void*>(static_cast<uintptr_t>(at)), from, count) == 0;
    };
    EXPECT_TRUE(same(routing->source, wanted.source.data(), wanted.source.size() * 4));
    EXPECT_TRUE(same(routing->slot_of, wanted.slot_of.data(), wanted.slot_of.size() * 4));
    EXPECT_TRUE(same(routing->ranges, wanted.ranges.data(), wanted.ranges.size() * sizeof(cuda::ExpertRange)));
    for (int size = 0; size < cuda::kTileSizes; ++size) {
      const auto& table = wanted.tiles[static_cast<size_t>(size)];
      const cuda::ExpertTiles tiles = routing->tiles_of(cuda::tokens_of_tile(size));
      EXPECT_TRUE(same(tiles.tiles, table.data(), table.size() * sizeof(cuda::ExpertTile)));
      EXPECT_EQ(*reinterpret_cast<const int32_t*>(static_cast<uintptr_t>(tiles.count)),
                static_cast<int32_t>(table.size()));
      EXPECT_EQ(tiles.tokens, cuda::tokens_of_tile(size));
      EXPECT_LE(static_cast<int64_t>(table.size()), tiles.most);
    }
    EXPECT_EQ(routing->tiles_of(32).tokens, 0);
    const auto end = address + static_cast<uintptr_t>(bytes) - reinterpret_cast<uintptr_t>(memory.data());
    for (size_t at = end; at < memory.size(); ++at) ASSERT_EQ(memory[at], std::byte{0xFF});
  }
  EXPECT_EQ(fake_work().launches.at(0).threads, 1024u);
  EXPECT_EQ(fake_work().launches.at(0).blocks, 1u);
  EXPECT_EQ(fake_work().launches.at(0).shared_bytes, static_cast<unsigned>(cuda::route_shared_bytes(6)));
}

const cuda::GemmKernel& kernel_of(const cuda::DeviceWeights& weights) {
  return *cuda::choose_expert_kernel(weights.about(), StagedType::bf16, {10, 2, 6});
}

TEST_F(FakeExperts, are_multiplied_in_one_launch_for_the_worst_routing) {
  const cuda::DeviceWeights six = weights(6);
  const cuda::GemmKernel& kernel = kernel_of(six);
  const auto routing = cuda::lay_out({10, 2, 6}, {1 << 20, 1 << 20});
  ASSERT_TRUE(routing) << routing.error().message;
  cuda::GemmArgs args{};
  fake_work().kernel = [&](const std::string& function, void** arguments) {
    if (function == kernel.function) std::memcpy(&args, arguments[0], sizeof args);
    return 0.0;
  };
  fake_work().launches.clear();
  const Status done =
      products_->multiply_experts(kernel, six, {.tokens = routing->slots, .x = 4096}, routing->tiles_of(kernel.tokens),
                                  {.address = 4096, .f32 = true, .stride = 200}, *stream_);
  ASSERT_TRUE(done) << done.error().message;
  ASSERT_EQ(fake_work().launches.size(), 1u);
  // 20 choices of 6 experts: 6 tiles of 64 tokens at most, 2 of 128 rows each.
  EXPECT_EQ(fake_work().launches[0].blocks, 12u);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(args.experts), routing->tiles[0]);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(args.expert_tiles), routing->counts);
  EXPECT_EQ(args.tokens, cuda::most_slots({10, 2, 6}));
  EXPECT_EQ(args.padded_rows, 6 * 256);
  EXPECT_EQ(args.expert_rows, 256);
  EXPECT_EQ(args.rows, 200);

  const cuda::DeviceWeights one = weights(1);
  ASSERT_TRUE(products_->multiply(kernel, one, {.tokens = 3, .x = 4096}, {.address = 4096, .f32 = true, .stride = 200},
                                  *stream_));
  EXPECT_EQ(args.experts, nullptr);
  EXPECT_EQ(args.expert_rows, 256);
  const Status nothing = products_->multiply_experts(kernel, six, {}, {.tokens = kernel.tokens}, {}, *stream_);
  EXPECT_TRUE(nothing) << nothing.error().message;
  EXPECT_EQ(fake_work().launches.size(), 2u);
}

TEST_F(FakeExperts, are_not_multiplied_as_one_matrix_or_by_a_table_of_other_tiles) {
  const cuda::DeviceWeights six = weights(6);
  const cuda::GemmKernel& kernel = kernel_of(six);
  const cuda::StagedTokens x{.tokens = 64, .x = 4096};
  const cuda::Output y{.address = 4096, .f32 = true, .stride = 200};
  EXPECT_EQ(products_->multiply(kernel, six, x, y, *stream_).error().message,
            "cuda: " + name(kernel) + ": wanted the weights of one matrix, got 6 experts");
  EXPECT_EQ(products_->multiply_experts(kernel, six, x, {.most = 1, .tokens = 128}, y, *stream_).error().message,
            "cuda: " + name(kernel) + ": wanted a table for tiles of 64 tokens, got 128");
  EXPECT_THAT(products_->multiply_experts(kernel, six, x, {.most = int64_t{1} << 30, .tokens = 64}, y, *stream_)
                  .error()
                  .message,
              HasSubstr("wanted at most 1073741824 tiles, got 2147483648"));
  const auto gemvs = cuda::Gemvs::load(*session_);
  ASSERT_TRUE(gemvs) << gemvs.error().message;
  int served = 0;
  for (const cuda::GemvKernel& gemv : cuda::gemv_kernels()) {
    if (!why_not(gemv, six.about(), session_->device()).empty()) continue;
    EXPECT_THAT(gemvs->multiply(gemv, six, x, y, *stream_).error().message,
                HasSubstr("wanted the weights of one matrix, got 6 experts"));
    ++served;
  }
  EXPECT_GT(served, 0);
}

TEST_F(FakeExperts, are_multiplied_by_kernels_of_wgmma_alone) {
  const cuda::DeviceWeights six = weights(6);
  int served = 0;
  for (const cuda::GemmKernel& kernel : cuda::gemm_kernels()) {
    if (!kernel.by_mma() || !why_not(kernel, six.about()).empty()) continue;
    EXPECT_EQ(products_
                  ->multiply_experts(kernel, six, {.tokens = 64, .x = 4096}, {.most = 1, .tokens = kernel.tokens},
                                     {.address = 4096, .f32 = true, .stride = 200}, *stream_)
                  .error()
                  .message,
              "cuda: " + name(kernel) + ": wanted a kernel of wgmma for a product over experts, got one of mma.sync");
    ++served;
  }
  EXPECT_GT(served, 0);
  // Groups of s8 have tiles of 64 tokens by mma.sync alone.
  const cuda::GemmKernel* const few = cuda::choose_expert_kernel(six.about(), StagedType::s8_group, {10, 2, 6});
  ASSERT_TRUE(few != nullptr);
  EXPECT_FALSE(few->by_mma()) << name(*few);
}

TEST_F(FakeExperts, are_routed_only_where_the_workspace_and_the_numbers_fit) {
  const Workspace room{1 << 20, 1 << 20};
  const auto error = [&](const RoutingShape& shape, const Workspace& workspace, cuda::Address choices = 4096) {
    const auto routing = router_->route(choices, shape, workspace, *stream_);
    return routing ? std::string("none") : routing.error().message;
  };
  EXPECT_EQ(error({10, 2, 6}, room), "none");
  EXPECT_EQ(error({0, 2, 6}, room), "none");
  EXPECT_EQ(error({10, 2, 0}, room), "cuda: experts: wanted 1 to 512 experts, got 0");
  EXPECT_EQ(error({10, 2, 513}, room), "cuda: experts: wanted 1 to 512 experts, got 513");
  EXPECT_EQ(error({10, 0, 6}, room), "cuda: experts: wanted up to 1073741824 choices, got 10 x 0");
  EXPECT_EQ(error({int64_t{1} << 29, 4, 6}, room), "cuda: experts: wanted up to 1073741824 choices, got 536870912 x 4");
  EXPECT_EQ(error({10, 2, 6}, {(1 << 20) + 16, 1 << 20}),
            "cuda: experts: wanted a workspace at a multiple of 256 bytes, got 0x100010");
  const int64_t bytes = cuda::routing_bytes({10, 2, 6});
  EXPECT_EQ(error({10, 2, 6}, {1 << 20, bytes}), "none");
  EXPECT_EQ(error({10, 2, 6}, {1 << 20, bytes - 1}),
            fmt::format("cuda: experts: wanted a workspace of {} bytes for 10 x 2 choices of 6 experts, got {}", bytes,
                        bytes - 1));
  EXPECT_EQ(error({10, 2, 6}, room, 4098), "cuda: experts: wanted choices at a multiple of 4 bytes, got 0x1002");
}

TEST_F(FakeExperts, are_combined_by_the_kernel_of_both_types) {
  const auto routing = cuda::lay_out({10, 2, 6}, {1 << 20, 1 << 20});
  fake_work().launches.clear();
  for (const bool x : {true, false}) {
    for (const bool y : {true, false}) {
      ASSERT_TRUE(router_->combine(*routing, {4096, x, 1040}, 4096, 1030, {4096, y, 1030}, *stream_));
    }
  }
  const char* const kernels[] = {"combine_f32_f32", "combine_f32_bf16", "combine_bf16_f32", "combine_bf16_bf16"};
  ASSERT_EQ(fake_work().launches.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(fake_work().launches[i].function, kernels[i]);
    EXPECT_EQ(fake_work().launches[i].blocks, 20u);
    EXPECT_EQ(fake_work().launches[i].threads, 256u);
  }
  const auto error = [&](const cuda::Output& x, cuda::Address weights, int64_t rows, const cuda::Output& y) {
    return router_->combine(*routing, x, weights, rows, y, *stream_).error().message;
  };
  EXPECT_EQ(error({4096, true, 99}, 4096, 100, {4096, true, 100}),
            "cuda: experts: wanted outputs of experts with a stride of at least 100, got 99");
  EXPECT_EQ(error({4096, true, 100}, 4096, 100, {4098, true, 100}),
            "cuda: experts: wanted an output at a multiple of 4 bytes, got 0x1002");
  EXPECT_EQ(error({4096, true, 100}, 4097, 100, {4098, false, 100}),
            "cuda: experts: wanted weights at a multiple of 4 bytes, got 0x1001");
  EXPECT_EQ(error({4096, true, 100}, 4096, 0, {4098, false, 100}),
            "cuda: experts: wanted 1 to 1073741824 rows of 10 tokens, got 0");
  const auto none = cuda::lay_out({0, 2, 6}, {1 << 20, 1 << 20});
  EXPECT_TRUE(router_->combine(*none, {4096, true, 100}, 4096, 100, {4096, true, 100}, *stream_));
  EXPECT_EQ(fake_work().launches.size(), 4u);
}

TEST_F(FakeExperts, have_tokens_gathered_for_every_slot) {
  const auto routing = cuda::lay_out({10, 2, 6}, {1 << 20, 1 << 20});
  cuda::ActivationArgs args{};
  fake_work().kernel = [&](const std::string&, void** arguments) {
    std::memcpy(&args, arguments[0], sizeof args);
    return 0.0;
  };
  fake_work().launches.clear();
  const cuda::StagingForm form{.element = cuda::StagedElement::s8};
  cuda::Tokens x{.address = 4096, .f32 = true, .tokens = 10, .cols = 100, .stride = 100};
  const int64_t slots = routing->slots, bytes = cuda::staging_bytes(form, slots, 100);
  const auto staged = staging_->stage_gathered(form, x, routing->gather(), {1 << 20, bytes}, *stream_);
  ASSERT_TRUE(staged) << staged.error().message;
  EXPECT_EQ(staged->tokens, slots);
  EXPECT_EQ(reinterpret_cast<uintptr_t>(args.source), routing->source);
  EXPECT_EQ(args.in_place, 0);
  EXPECT_EQ(args.tokens, slots);
  ASSERT_EQ(fake_work().launches.size(), 1u);
  EXPECT_EQ(fake_work().launches[0].blocks, static_cast<unsigned>(cuda::padded_tokens(slots)));
  const auto error = [&](const cuda::Gather& gather, int64_t room) {
    const auto refused = staging_->stage_gathered(form, x, gather, {1 << 20, room}, *stream_);
    return refused ? std::string("none") : refused.error().message;
  };
  EXPECT_EQ(error(routing->gather(), bytes - 1),
            fmt::format("cuda: staging: wanted a workspace of {} bytes for {} x 100, got {}", bytes, slots, bytes - 1));
  EXPECT_EQ(error({.tokens = 5}, bytes), "cuda: staging: wanted the rows of tokens at a multiple of 4 bytes, got 0x0");
  EXPECT_EQ(error(routing->gather(true), bytes), fmt::format("cuda: staging: wanted at least {} rows, got 10", slots));
  x.tokens = slots;
  EXPECT_EQ(error(routing->gather(true), bytes), "none");
  EXPECT_EQ(args.in_place, 1);
}

TEST(ExpertsOnAFailingDriver, say_what_went_wrong) {
  if (cuda::experts_code().empty()) GTEST_SKIP() << "built without nvcc";
  for (const char* const call : {"cuModuleLoadData", "cuModuleGetFunction", "cuFuncSetAttribute", "cuLaunchKernel"}) {
    const cuda::DriverApi api = fake_driver(call);
    const auto session = cuda::Session::open(api, {.name = "Fake H200", .capability = 90});
    ASSERT_TRUE(session) << session.error().message;
    const auto router = cuda::ExpertRouter::load(*session);
    if (!router) {
      EXPECT_THAT(router.error().message, HasSubstr(call));
      continue;
    }
    const auto stream = session->stream();
    const auto routing = router->route(4096, {10, 2, 6}, {1 << 20, 1 << 20}, *stream);
    ASSERT_FALSE(routing);
    EXPECT_THAT(routing.error().message, HasSubstr(call));
  }
}

}  // namespace
}  // namespace octalane::test
