// Negative controls: the judge of the contract must see one wrong nibble, scale or group in the packed bytes.
#include <algorithm>
#include <functional>

#include "kernels/all_kernels.h"
#include "kernels/oracle.h"

namespace octalane::test {
namespace {

using Damage = std::function<bool(Packed&)>;  // false: nothing in these weights that it could damage

constexpr int64_t kRows = 24, kTokens = 3;

int64_t columns_for(const WeightSpec& spec) { return spec.scale.nested() ? 512 : 256; }

/// Every kernel that serves these weights passes the judge as packed, and fails it after the damage.
void expect_noticed(const NamedSpec& spec, const Damage& damage, int& controls) {
  const int64_t cols = columns_for(spec.spec);
  const Planes planes = random_planes(spec.spec, kRows, cols, 11);
  const Activations x = Activations::random(kTokens, cols, 12);
  SCOPED_TRACE(spec.name);
  for_each_kernel(spec.spec, cols, [&](const IsaTable& isa, const Kernel& kernel) {
    Product product(isa, kernel, planes, x.view());
    const Judged judged = judge_kernel(kernel, planes, product.formed());
    product.run();
    EXPECT_EQ(mismatch(judged, product.y()), "");
    if (!damage(product.packed())) return;
    product.run();
    EXPECT_NE(mismatch(judged, product.y()), "") << "the judge did not notice";
    ++controls;
  });
}

void expect_noticed_everywhere(const Damage& damage) {
  int controls = 0;
  for (const NamedSpec& spec : all_specs()) expect_noticed(spec, damage, controls);
  EXPECT_GT(controls, 20);
}

/// Swaps `bytes` bytes at a and b, at the first distance from them at which they differ.
bool swap_differing(std::byte* a, std::byte* b, int bytes) {
  if (std::equal(a, a + bytes, b)) return false;
  std::swap_ranges(a, a + bytes, b);
  return true;
}

TEST(NegativeControl, a_swapped_nibble_is_noticed) {
  expect_noticed_everywhere([](Packed& packed) {
    if (packed.view().spec.code.bits != 4) return false;
    for (int i = 0; i < 4; ++i) {
      std::byte& byte = packed.bytes(0, 0)[i];
      const std::byte swapped = (byte << 4) | (byte >> 4);
      if (swapped == byte) continue;
      byte = swapped;
      return true;
    }
    return false;
  });
}

TEST(NegativeControl, a_scale_shifted_to_the_next_row_is_noticed) {
  expect_noticed_everywhere([](Packed& packed) {
    const PackedView& view = packed.view();
    if (view.spec.code.is_float()) return false;
    const int width = bytes_of(view.spec.scale.type);
    // A tile of one row has no next row: the next row's record then.
    const bool single = view.order.rows == 1;
    for (int row = 0; row + 1 < view.order.rows || (single && row < 8); ++row) {
      std::byte* from = packed.bytes(single ? row : 0, 0) + view.record.scale + (single ? 0 : row * width);
      std::byte* to = single ? packed.bytes(row + 1, 0) + view.record.scale : from + width;
      if (swap_differing(from, to, width)) return true;
    }
    return false;
  });
}

TEST(NegativeControl, the_scale_of_the_wrong_group_is_noticed) {
  expect_noticed_everywhere([](Packed& packed) {
    const PackedView& view = packed.view();
    if (view.spec.code.is_float()) return false;
    const ScaleSpec& s = view.spec.scale;
    const int plane = s.nested() ? view.record.sub_scale : view.record.scale;
    const int width = s.nested() ? 1 : bytes_of(s.type);
    const bool inside = view.record.groups > 1;  // the neighbour group lies in the same record, or in the next one
    for (int row = 0; row < view.order.rows; ++row) {
      std::byte* from = packed.bytes(0, 0) + plane + row * width;
      std::byte* to = inside ? from + view.order.rows * width : packed.bytes(0, 1) + plane + row * width;
      if (swap_differing(from, to, width)) return true;
    }
    return false;
  });
}

TEST(NegativeControl, a_wrong_bit_in_one_quad_of_columns_is_noticed) {
  expect_noticed_everywhere([](Packed& packed) {
    const PackedView& view = packed.view();
    if (view.spec.code.is_float()) return false;
    for (int i = 0; i < 4 * view.order.rows; ++i) packed.bytes(0, 0)[i] ^= std::byte{0x80};
    return true;
  });
}

TEST(NegativeControl, a_token_with_one_wrong_activation_is_noticed) {
  const NamedSpec& spec = spec_named("u4_g32_f16_bias");
  const Planes planes = random_planes(spec.spec, kRows, 256, 13);
  Activations x = Activations::random(kTokens, 256, 14);
  for_each_kernel(spec.spec, 256, [&](const IsaTable& isa, const Kernel& kernel) {
    const Product before(isa, kernel, planes, x.view());
    const Judged judged = judge_kernel(kernel, planes, before.formed());
    Activations changed = x;
    changed.at(0, 77) += 0.5f;
    Product product(isa, kernel, planes, changed.view());
    product.run();
    EXPECT_NE(mismatch(judged, product.y()), "");
  });
}

}  // namespace
}  // namespace octalane::test
