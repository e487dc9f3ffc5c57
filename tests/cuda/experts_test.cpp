// Products over experts as far as they can be seen without a device: how weights of experts are packed, which slots and
// tiles there are, and which kernel takes them.
#include "cuda/experts.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "cuda/gemm_args.h"
#include "cuda/host_routing.h"
#include "cuda/kernel_weights.h"

namespace octalane::test {
namespace {

using cuda::RoutingShape;

/// Experts' weights in tiles of one row, and what re-encodes them.
struct HostExperts {
  std::vector<Planes> planes;
  std::vector<Packed> packed;
  std::vector<PackedView> views;
  std::vector<Restaged> restaged;

  HostExperts(const WeightSpec& spec, StagedType staged, int64_t count, int64_t rows, int64_t cols) {
    for (int64_t e = 0; e < count; ++e) {
      planes.push_back(random_planes(spec, rows, cols, static_cast<uint32_t>(70 + e)));
      packed.emplace_back(planes.back(), scalar_gemm(staged).order);
    }
    for (const Packed& expert : packed) {
      views.push_back(expert.view());
      if (octalane::restaged(staged)) restaged.push_back(restage(expert.view(), staged, 1));
    }
  }
};

struct Lane {
  const char* spec;
  StagedType staged;
};

TEST(ExpertRecords, are_those_of_each_expert_one_after_another) {
  for (const Lane& lane : {Lane{"u4_zero8_g32_f16", StagedType::bf16},
                           {"u4_zero8_g32_f16", StagedType::s8_row},
                           {"u4_zero8_g32_f16", StagedType::s8_block},
                           {"u4_g32_nested_bias", StagedType::bf16},
                           {"table_g32_e8m0", StagedType::f8_row}}) {
    SCOPED_TRACE(testing::Message() << lane.spec << " in " << name(lane.staged));
    const HostExperts experts(spec_named(lane.spec).spec, lane.staged, 3, 140, 768);
    const auto all = cuda::pack_experts(experts.views, lane.staged, experts.restaged, 3);
    ASSERT_TRUE(all) << all.error().message;
    EXPECT_EQ(all->experts, 3);
    EXPECT_EQ(all->rows, 140);
    EXPECT_EQ(all->padded_rows, 3 * 256);
    EXPECT_EQ(all->expert_rows(), 256);
    size_t bytes = 0, supers = 0;
    for (size_t e = 0; e < 3; ++e) {
      const auto one = cuda::pack_records(experts.views[e], lane.staged,
                                          experts.restaged.empty() ? nullptr : &experts.restaged[e], 1);
      ASSERT_TRUE(one) << one.error().message;
      ASSERT_EQ(one->scales, all->scales) << "else there is nothing to compare";
      for (const std::byte byte : one->bytes) ASSERT_EQ(byte, all->bytes[bytes++]) << "expert " << e;
      for (const uint32_t pair : one->supers) ASSERT_EQ(pair, all->supers[supers++]) << "expert " << e;
      const size_t units = one->unit_scales.size() / 256;
      for (size_t u = 0; u < units; ++u) {
        for (size_t n = 0; n < 256; ++n) {
          ASSERT_EQ(one->unit_scales[u * 256 + n], all->unit_scales[(u * 3 + e) * 256 + n]) << e << ", row " << n;
        }
      }
      EXPECT_EQ(one->unit_scales.size() * 3, all->unit_scales.size());
    }
    EXPECT_EQ(bytes, all->bytes.size());
    EXPECT_EQ(supers, all->supers.size());
  }
}

TEST(ExpertRecords, have_scale_words_that_the_widest_spread_needs) {
  HostExperts experts(spec_named("table_g32_e8m0").spec, StagedType::bf16, 2, 3, 128);
  PlaneRow row = experts.planes[1].row(1);
  row.scale[0] = 0x1p13f, row.scale[1] = row.scale[2] = row.scale[3] = 1;
  for (int k = 0; k < 128; ++k) row.codes[k] = 7;
  const Packed wide(experts.planes[1], scalar_gemm(StagedType::f8_row).order);
  std::vector<PackedView> views{experts.views[0], wide.view()};
  std::vector<Restaged> made;
  for (const PackedView& view : views) made.push_back(restage(view, StagedType::f8_row, 1));
  ASSERT_LE(made[0].spread, cuda::kMostExponentSpread);
  ASSERT_GT(made[1].spread, cuda::kMostExponentSpread);
  const auto records = cuda::pack_experts(views, StagedType::f8_row, made, 1);
  ASSERT_TRUE(records) << records.error().message;
  EXPECT_EQ(records->scales, cuda::ScaleWords::shift);
}

TEST(ExpertRecords, are_served_by_every_kernel_that_serves_one_expert) {
  for (const cuda::GemmKernel& kernel : cuda::gemm_kernels()) {
    SCOPED_TRACE(name(kernel));
    int served = 0;
    for (const NamedSpec& spec : device_specs()) {
      if (!why_not(kernel, spec.spec).empty()) continue;
      const Planes planes = planes_for(kernel, spec.spec, 3, 2 * column_unit(spec.spec), 72);
      const Packed packed(planes, scalar_gemm(kernel.staged).order);
      const std::vector<PackedView> views(2, packed.view());
      std::vector<Restaged> made;
      for (const PackedView& view : views) {
        if (restaged(kernel.staged)) made.push_back(restage(view, kernel.staged, 1));
      }
      const auto records = cuda::pack_experts(views, kernel.staged, made, 1);
      ASSERT_TRUE(records) << records.error().message;
      EXPECT_EQ(why_not(kernel, *records), "") << spec.name;
      ++served;
    }
    EXPECT_GT(served, 0);
  }
}

TEST(ExpertRecords, say_which_expert_is_unlike_the_first) {
  const HostExperts experts(spec_named("u4_zero8_g32_f16").spec, StagedType::bf16, 2, 70, 128);
  const HostExperts longer(spec_named("u4_zero8_g32_f16").spec, StagedType::bf16, 1, 70, 160);
  const HostExperts other(spec_named("u4_g64_bf16_bias").spec, StagedType::bf16, 1, 70, 128);
  const auto error = [](std::vector<PackedView> views, std::vector<Restaged> made = {}) {
    const auto records = cuda::pack_experts(views, StagedType::bf16, made, 1);
    return records ? std::string("none") : records.error().message;
  };
  const PackedView& good = experts.views[0];
  EXPECT_EQ(error({good, experts.views[1]}), "none");
  EXPECT_EQ(error({}), "cuda: bf16: wanted at least one expert, got none");
  EXPECT_EQ(error({good, good, longer.views[0]}), "cuda: bf16: expert 2: wanted 70 x 128 as the first, got 70 x 160");
  EXPECT_EQ(error({good, other.views[0]}),
            "cuda: bf16: expert 1: wanted weights of the first expert's kind, got others");
  std::vector<Restaged> one;
  one.push_back(restage(good, StagedType::s8_row, 1));
  EXPECT_EQ(error({good, good}, std::move(one)), "cuda: bf16: wanted 2 re-encodings, got 1");
}

TEST(ExpertSlots, have_room_for_every_routing_and_no_more) {
  EXPECT_EQ(cuda::most_slots({0, 2, 8}), 0);
  EXPECT_EQ(cuda::most_slots({1, 1, 8}), 64);
  EXPECT_EQ(cuda::most_slots({1, 8, 128}), 8 * 64);  // each choice has an expert of its own
  EXPECT_EQ(cuda::most_slots({65, 1, 1}), 128);
  EXPECT_EQ(cuda::most_slots({33, 4, 3}), 5 * 64);  // 65, 65 and 2
  for (int64_t choices = 0; choices < 300; ++choices) {
    for (const int64_t unit : {64, 192}) {
      int64_t most = 0;
      for (int64_t first = 0; first <= choices; ++first) {
        for (int64_t second = 0; first + second <= choices; ++second) {
          const int64_t third = choices - first - second;
          most = std::max(most, (first + unit - 1) / unit + (second + unit - 1) / unit + (third + unit - 1) / unit);
        }
      }
      ASSERT_EQ(cuda::most_tiles({choices, 1, 3}, unit), most) << choices;
      if (unit == 64) {
        ASSERT_EQ(cuda::most_slots({choices, 1, 3}), most * 64) << choices;
      }
    }
  }
  EXPECT_EQ(cuda::most_tiles({1, 8, 128}, 256), 8);
  EXPECT_EQ(cuda::most_tiles({257, 1, 1}, 256), 2);
  for (const RoutingShape shape : {RoutingShape{7, 2, 3}, {100, 4, 16}, {1000, 8, 64}, {40, 1, 128}}) {
    std::vector<NamedChoices> all{crowd(shape, static_cast<int32_t>(shape.experts) - 1)};
    for (uint32_t seed = 0; seed < 20; ++seed) all.push_back(random_choices(shape, seed));
    for (const NamedChoices& choices : all) {
      const HostRouting routing = route_on_host(choices.choices, shape);
      ASSERT_LE(routing.slots, cuda::most_slots(shape));
      for (int size = 0; size < cuda::kTileSizes; ++size) {
        ASSERT_LE(static_cast<int64_t>(routing.tiles[static_cast<size_t>(size)].size()),
                  cuda::most_tiles(shape, cuda::tokens_of_tile(size)));
      }
    }
  }
}

/// The walk of the product kernels over all tiles: what each reads, and which outputs it writes.
TEST(ExpertTiles, write_each_output_once_and_read_what_belongs_to_it) {
  constexpr int kExpertRows = 256;
  std::set<std::pair<int, int>> shapes;
  for (const cuda::GemmKernel& kernel : cuda::gemm_kernels()) shapes.emplace(kernel.tokens, kernel.rows);
  for (const NamedChoices& choices : {uneven_choices(300, 6), crowd({150, 2, 6}, 5), random_choices({150, 2, 6}, 3),
                                      random_choices({3, 2, 64}, 4), uneven_choices(1, 6)}) {
    const HostRouting routing = route_on_host(choices.choices, choices.shape);
    for (const auto& [tokens, rows] : shapes) {
      for (const int output_rows : {1, 128, 200, 256}) {
        SCOPED_TRACE(testing::Message() << choices.name << ", tiles of " << tokens << " x " << rows);
        ASSERT_EQ(tokens % 64, 0);
        const auto& table = routing.tiles[static_cast<size_t>(tokens / 64 - 1)];
        const int row_tiles = (output_rows + rows - 1) / rows;
        std::vector<int> written(static_cast<size_t>(cuda::padded_tokens(routing.slots) * kExpertRows));
        for (int tile = 0; tile < static_cast<int>(table.size()) * row_tiles; ++tile) {
          const cuda::ExpertTile& entry = table[static_cast<size_t>(tile / row_tiles)];
          const cuda::ExpertPlace place = expert_place(entry, tile, tokens, rows, row_tiles, kExpertRows);
          ASSERT_EQ(place.token % 64, 0);
          ASSERT_LE(place.token + tokens, cuda::padded_tokens(routing.slots)) << "scales are read for whole tiles";
          ASSERT_EQ(place.record_row, entry.expert * kExpertRows + place.row);
          ASSERT_LE(place.row + rows, kExpertRows);
          const cuda::ExpertRange& range = routing.ranges[static_cast<size_t>(entry.expert)];
          ASSERT_EQ(place.end, range.end);
          for (int slot = place.token; slot < place.token + tokens; ++slot) {
            if (slot / 64 * 64 >= place.end) continue;  // no box begins there
            ASSERT_GE(slot, range.begin);
            for (int row = place.row; row < place.row + rows; ++row) ++written[size_t(slot * kExpertRows + row)];
          }
        }
        for (const cuda::ExpertRange& range : routing.ranges) {
          for (int slot = range.begin; slot < (range.end + 63) / 64 * 64; ++slot) {
            for (int row = 0; row < output_rows; ++row) ASSERT_EQ(written[size_t(slot * kExpertRows + row)], 1);
          }
        }
        for (size_t at = static_cast<size_t>(routing.slots) * kExpertRows; at < written.size(); ++at) {
          ASSERT_EQ(written[at], 0);
        }
      }
    }
  }
}

TEST(ExpertKernel, has_the_smallest_tile_that_holds_an_even_share) {
  const WeightSpec& spec = spec_named("u4_zero8_g32_f16").spec;
  const auto tokens = [&](StagedType staged, const RoutingShape& shape) {
    const auto records = cuda::describe_records(spec, 200, 512, staged);
    const cuda::GemmKernel* const kernel = cuda::choose_expert_kernel(*records, staged, shape);
    return kernel == nullptr ? 0 : kernel->tokens;
  };
  EXPECT_EQ(tokens(StagedType::bf16, {1, 8, 128}), 64);
  EXPECT_EQ(tokens(StagedType::bf16, {1024, 8, 128}), 64);
  EXPECT_EQ(tokens(StagedType::bf16, {1040, 8, 128}), 128);
  EXPECT_EQ(tokens(StagedType::bf16, {4096, 8, 128}), 256);
  EXPECT_EQ(tokens(StagedType::s8_row, {8192, 8, 128}), 256);
  EXPECT_EQ(tokens(StagedType::s8_row, {0, 8, 128}), 64);
  EXPECT_EQ(tokens(StagedType::s8_block, {2048, 8, 128}), 192);
  EXPECT_EQ(tokens(StagedType::s8_nested, {2048, 8, 128}), 0);
  const RoutingShape shape{10, 2, 6};
  const auto routing = cuda::lay_out(shape, {256, cuda::routing_bytes(shape)});
  ASSERT_TRUE(routing) << routing.error().message;
  for (const cuda::GemmKernel& kernel : cuda::gemm_kernels()) {
    EXPECT_EQ(routing->tiles_of(kernel.tokens).tokens, kernel.tokens) << "no table for " << name(kernel);
  }
}

}  // namespace
}  // namespace octalane::test
