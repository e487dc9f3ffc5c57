// The maths of rows: whatever vectors an instruction set makes of it, the bits are those of scalar.
#include <cmath>
#include <limits>

#include "kernels/all_kernels.h"

namespace octalane::test {
namespace {

std::vector<float> awkward_row(int64_t n, uint32_t seed) {
  std::mt19937 random(seed);
  std::normal_distribution<float> normal(0.0f, 30.0f);
  std::vector<float> x(static_cast<size_t>(n));
  for (float& value : x) value = normal(random);
  for (const float special : {0.0f, -0.0f, 1e-40f, -200.0f, 200.0f}) x[random() % x.size()] = special;
  return x;
}

void expect_same_bits(const std::vector<float>& a, const std::vector<float>& b, const char* isa) {
  for (size_t i = 0; i < a.size(); ++i) ASSERT_TRUE(same_bits(a[i], b[i])) << isa << " element " << i;
}

TEST(Rows, every_instruction_set_gives_the_bits_of_scalar) {
  const RowMath& scalar = row_math(*find_isa("scalar"));
  for_each_isa([&](const IsaTable& isa) {
    for (const int64_t n : {1, 5, 16, 64, 577, 1536}) {
      const std::vector<float> x = awkward_row(n, 1), y = awkward_row(n, 2);
      const auto both = [&](auto operation) {
        std::vector<float> a = x, b = x;
        operation(scalar, a.data());
        operation(row_math(isa), b.data());
        expect_same_bits(a, b, isa.name);
      };
      both([&](const RowMath& rows, float* row) { rows.rms_norm(row, y.data(), 1e-5f, n, row); });
      both([&](const RowMath& rows, float* row) { rows.silu_multiply(row, y.data(), n); });
      both([&](const RowMath& rows, float* row) { rows.add(row, y.data(), n); });
    }
  });
}

TEST(Rows, silu_of_nan_and_infinity_is_what_the_formula_says) {
  for_each_isa([](const IsaTable& isa) {
    const float inf = std::numeric_limits<float>::infinity();
    std::vector<float> gate(20, std::nanf("")), up(20, 1.0f);
    gate[1] = inf;
    gate[2] = 0.0f;
    row_math(isa).silu_multiply(gate.data(), up.data(), 20);
    EXPECT_TRUE(std::isnan(gate[0])) << isa.name;
    EXPECT_EQ(gate[1], inf);
    EXPECT_EQ(gate[2], 0.0f);
  });
}

}  // namespace
}  // namespace octalane::test
