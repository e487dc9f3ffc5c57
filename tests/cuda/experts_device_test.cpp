// Tokens on their way to experts and back, on a device: slots are those of the host's routing, each slot's token is
// staged to the bit as among its own, and sums are those of the host. Outputs are poisoned before, and what lies around
// them must stay.
#include <gtest/gtest.h>

#include <bit>

#include "core/half.h"
#include "cuda/experts_on_device.h"
#include "kernels/operands.h"

namespace octalane::test {
namespace {

using cuda::Buffer;

TEST_F(CudaExperts, are_routed_as_on_the_host) {
  std::vector<NamedChoices> all{
      uneven_choices(1, 6),         uneven_choices(150, 6),         uneven_choices(3000, 17),
      crowd({1, 1, 1}, 0),          crowd({300, 4, 3}, 2),          crowd({5000, 8, 128}, 77),
      crowd({40, 2, 6}, 6),         random_choices({5, 2, 6}, 1),   random_choices({64, 1, 2}, 2),
      random_choices({0, 2, 6}, 3), random_choices({33, 1, 512}, 4)};
  for (const cuda::RoutingShape shape : {cuda::RoutingShape{1000, 8, 128}, {4099, 8, 128}, {33000, 2, 512}}) {
    all.push_back(random_choices(shape, 5));
  }
  for (const NamedChoices& choices : all) {
    const cuda::RoutingShape& shape = choices.shape;
    SCOPED_TRACE(testing::Message() << choices.name << ", " << shape.tokens << " x " << shape.top_k << " of "
                                    << shape.experts);
    const HostRouting wanted = route_on_host(choices.choices, shape);
    const Routed routed(choices);
    ASSERT_FALSE(HasFailure());
    const cuda::Routing& got = routed.routing;
    ASSERT_EQ(part<int32_t>(routed.workspace, got.source, wanted.source.size()), wanted.source);
    ASSERT_EQ(part<int32_t>(routed.workspace, got.slot_of, wanted.slot_of.size()), wanted.slot_of);
    const auto ranges = part<cuda::ExpertRange>(routed.workspace, got.ranges, wanted.ranges.size());
    for (size_t e = 0; e < ranges.size(); ++e) {
      ASSERT_EQ(ranges[e].begin, wanted.ranges[e].begin) << "expert " << e;
      ASSERT_EQ(ranges[e].end, wanted.ranges[e].end) << "expert " << e;
    }
    const cuda::RouteCounts counts = part<cuda::RouteCounts>(routed.workspace, got.counts, 1)[0];
    EXPECT_EQ(counts.slots, wanted.slots);
    EXPECT_EQ(counts.left_out, wanted.left_out);
    for (int size = 0; size < cuda::kTileSizes; ++size) {
      const auto& table = wanted.tiles[static_cast<size_t>(size)];
      const cuda::ExpertTiles tiles = got.tiles_of(cuda::tokens_of_tile(size));
      ASSERT_EQ(counts.tiles[size], static_cast<int32_t>(table.size()));
      const auto made = part<cuda::ExpertTile>(routed.workspace, tiles.tiles, static_cast<size_t>(tiles.most));
      for (size_t i = 0; i < made.size(); ++i) {
        const cuda::ExpertTile want = i < table.size() ? table[i] : cuda::ExpertTile{-1, -1, -1, -1};
        ASSERT_EQ(std::memcmp(&made[i], &want, sizeof want), 0) << "entry " << i << " for " << tiles.tokens;
      }
    }
    const auto end = routed.workspace.address() + static_cast<cuda::Address>(cuda::routing_bytes(shape));
    for (const std::byte byte : part<std::byte>(routed.workspace, end, 256)) ASSERT_EQ(byte, std::byte{0xFF});
  }
}

/// What is staged for one token, in one row of bytes.
std::vector<std::byte> staged_token(const cuda::StagingForm& form, const std::vector<std::byte>& memory,
                                    const cuda::StagedTokens& staged, cuda::Address base, int64_t cols, int64_t token) {
  std::vector<std::byte> all;
  const auto take = [&](cuda::Address at, int64_t offset, int64_t bytes) {
    const auto first = memory.begin() + static_cast<int64_t>(at - base) + offset;
    all.insert(all.end(), first, first + bytes);
  };
  const int64_t columns = cuda::staged_columns(form, cols), padded = cuda::padded_tokens(staged.tokens);
  const bool f16 = form.element == cuda::StagedElement::f16;
  const int64_t row_bytes = columns * (f16 || form.element == cuda::StagedElement::bf16 ? 2 : 1);
  take(staged.x, token * row_bytes, row_bytes);
  if (staged.scales == 0) return all;
  if (f16) {
    const int64_t sums_bytes = columns / form.group * 4;
    take(staged.scales, token * 4, 4);
    take(staged.sums, token * sums_bytes, sums_bytes);
    return all;
  }
  const int64_t group = form.group == 0 ? columns : form.group;
  for (int64_t g = 0; g < (columns + group - 1) / group; ++g) take(staged.scales, (g * padded + token) * 4, 4);
  for (int64_t g = 0; form.sums && g < columns / group; ++g) take(staged.sums, (g * padded + token) * 4, 4);
  for (int64_t g = 0; form.minima && g < (columns + 255) / 256 * 8; ++g) {
    for (const bool rest : {false, true}) {
      const int at = cuda::minima_position(static_cast<int>(token), static_cast<int>(g % 8), rest);
      take(staged.minima, (g / 8 * padded * 16 + at) * 2, 2);
    }
  }
  return all;
}

TEST_F(CudaExperts, have_tokens_staged_as_they_are_without_slots) {
  OnDevice& on = OnDevice::get();
  constexpr int64_t kTokens = 150;
  const NamedChoices choices = uneven_choices(kTokens, 6);
  const HostRouting host = route_on_host(choices.choices, choices.shape);
  const Routed routed(choices);
  ASSERT_FALSE(HasFailure());
  const int64_t slots = routed.routing.slots;
  using cuda::StagedElement;
  for (const cuda::StagingForm& form : {cuda::StagingForm{},
                                        {.element = StagedElement::f16, .group = 32, .code = cuda::Code::nibble},
                                        {.element = StagedElement::s8},
                                        {.element = StagedElement::s8, .group = 256},
                                        {.element = StagedElement::s8, .group = 256, .minima = true},
                                        {.element = StagedElement::s8, .group = 64, .sums = true},
                                        {.element = StagedElement::e4m3}}) {
    for (const int64_t cols : {100, 640, 4096}) {
      SCOPED_TRACE(testing::Message() << cuda::name(form) << ", " << cols << " columns");
      const Activations x = Activations::random(kTokens, cols, 21);
      std::vector<float> rows, gathered;
      for (int64_t m = 0; m < kTokens; ++m) rows.insert(rows.end(), &x.view()(m, 0), &x.view()(m, 0) + cols);
      for (const int32_t token : host.source) {
        for (int64_t k = 0; k < cols; ++k) gathered.push_back(token < 0 ? std::nanf("") : x.at(token, k));
      }
      const Buffer from = on.upload(rows), from_slots = on.upload(gathered);
      const cuda::Tokens tokens{from.address(), true, kTokens, cols, cols};
      const auto run = [&](int64_t count, auto stage, std::vector<std::byte>& memory) {
        memory.assign(static_cast<size_t>(cuda::staging_bytes(form, count, cols)), std::byte{0xFF});
        const Buffer workspace = on.upload(memory);
        const auto staged = stage(cuda::Workspace{workspace.address(), workspace.bytes()});
        finish(staged);
        on.download(memory, workspace);
        return std::pair(staged ? *staged : cuda::StagedTokens{}, workspace.address());
      };
      std::vector<std::byte> dense, by_source, in_place;
      const auto [one, one_at] = run(
          kTokens, [&](auto room) { return on.kernels->staging.stage(form, tokens, room, *on.stream); }, dense);
      const auto [some, some_at] = run(
          slots,
          [&](auto room) {
            return on.kernels->staging.stage_gathered(form, tokens, routed.routing.gather(), room, *on.stream);
          },
          by_source);
      run(
          slots,
          [&](auto room) {
            return on.kernels->staging.stage_gathered(form, {from_slots.address(), true, slots, cols, cols},
                                                      routed.routing.gather(true), room, *on.stream);
          },
          in_place);
      ASSERT_FALSE(HasFailure());
      ASSERT_EQ(by_source, in_place);
      for (int64_t slot = 0; slot < slots; ++slot) {
        const int32_t token = host.source[static_cast<size_t>(slot)];
        const auto got = staged_token(form, by_source, some, some_at, cols, slot);
        if (token < 0) {
          for (const std::byte byte : got) ASSERT_EQ(byte, std::byte{0}) << "slot " << slot;
        } else {
          ASSERT_EQ(got, staged_token(form, dense, one, one_at, cols, token)) << "slot " << slot;
        }
      }
    }
  }
}

TEST_F(CudaExperts, are_combined_in_the_order_of_choices) {
  OnDevice& on = OnDevice::get();
  NamedChoices choices = random_choices({70, 3, 6}, 24);
  choices.choices[5] = 6, choices.choices[9] = choices.choices[10] = choices.choices[11] = -3;
  const HostRouting host = route_on_host(choices.choices, choices.shape);
  const Routed routed(choices);
  ASSERT_FALSE(HasFailure());
  const std::vector<float> weights = random_values(choices.choices.size(), 25);
  const Buffer device_weights = on.upload(weights);
  for (const int64_t rows : {1, 63, 1024, 1030}) {
    for (const int which : {0, 1, 2, 3}) {
      const bool x_f32 = which / 2 == 0, y_f32 = which % 2 == 0;
      SCOPED_TRACE(testing::Message() << rows << " rows, " << (x_f32 ? "fp32" : "bfloat16") << " to "
                                      << (y_f32 ? "fp32" : "bfloat16"));
      const int64_t x_stride = rows % 2 == 0 ? (rows + 7) / 8 * 8 : rows + 2, y_stride = rows + (rows % 2 == 0 ? 8 : 1);
      std::vector<float> x = random_values(static_cast<size_t>(routed.routing.slots * x_stride), 26);
      std::vector<uint16_t> half;
      for (float& value : x) {
        half.push_back(f32_to_bf16(value));
        if (!x_f32) value = bf16_to_f32(half.back());
      }
      const Buffer from = x_f32 ? on.upload(x) : on.upload(half);
      const int64_t width = y_f32 ? 4 : 2;
      const Buffer y = poisoned((choices.shape.tokens * y_stride + 16) * width);
      finish(router().combine(routed.routing, {from.address(), x_f32, x_stride}, device_weights.address(), rows,
                              {y.address(), y_f32, y_stride}, *on.stream));
      const std::vector<float> wanted = combined(host, choices.shape, weights, rows, [&](int64_t choice, int64_t n) {
        return x[static_cast<size_t>(host.slot_of[static_cast<size_t>(choice)] * x_stride + n)];
      });
      const auto bytes = part<std::byte>(y, y.address(), static_cast<size_t>(y.bytes()));
      for (int64_t i = 0; i < choices.shape.tokens * y_stride + 16; ++i) {
        uint32_t bits = 0;
        std::memcpy(&bits, &bytes[static_cast<size_t>(i * width)], static_cast<size_t>(width));
        const int64_t token = i / y_stride, n = i % y_stride;
        if (token >= choices.shape.tokens || n >= rows) {
          ASSERT_EQ(bits, y_f32 ? 0xFFFFFFFFu : 0xFFFFu) << "written outside: " << token << ", " << n;
          continue;
        }
        const float want = wanted[static_cast<size_t>(token * rows + n)];
        const uint32_t want_bits = y_f32 ? std::bit_cast<uint32_t>(want) : f32_to_bf16(want);
        ASSERT_EQ(bits, want_bits) << token << ", " << n << ": wanted " << want;
      }
    }
  }
}

}  // namespace
}  // namespace octalane::test
