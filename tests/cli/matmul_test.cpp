// matmul against NumPy's product of the weights that the gguf package decodes (golden/make_matmul.py).
#include <cmath>

#include "cli/tool.h"
#include "files/npy.h"

namespace octalane::cli_test {
namespace {

std::string golden(const std::string& name) { return std::string(OCTALANE_TEST_DATA) + "/cli/golden/" + name; }

Arguments multiply(const std::string& tensor, const std::string& x, const std::string& y) {
  return {"matmul", "-w", golden("matmul.gguf"), "-t", tensor, "-x", x, "-o", y};
}

Matrix read(const std::string& path) {
  Expected<Matrix> matrix = read_npy(path);
  EXPECT_TRUE(matrix) << path;
  return matrix ? std::move(*matrix) : Matrix{};
}

double distance(const Matrix& got, const Matrix& wanted) {
  double difference = 0, norm = 0;
  for (size_t i = 0; i < wanted.values.size(); ++i) {
    difference += std::pow(double{got.values[i]} - double{wanted.values[i]}, 2);
    norm += std::pow(double{wanted.values[i]}, 2);
  }
  return std::sqrt(difference / norm);
}

class Matmul : public testing::TestWithParam<const char*> {};

TEST_P(Matmul, reference_is_numpys_product_rounded_once) {
  const std::string y = scratch() / "reference.npy";
  Arguments command = multiply(GetParam(), golden("x.npy"), y);
  command.emplace_back("--reference");
  const Json result = octalane_json(command);
  EXPECT_EQ(result["kernel"], "reference");
  EXPECT_EQ(result["shape"], Json({4, 7}));
  EXPECT_LT(result["total_error"].get<double>(), 0x1p-24);
  const Matrix got = read(y), wanted = read(golden(std::string(GetParam()) + ".y.npy"));
  ASSERT_EQ(got.values.size(), wanted.values.size());
  for (size_t i = 0; i < wanted.values.size(); ++i) {
    // The sums differ in the order of fp64 additions, so at most in where a tie falls.
    EXPECT_LE(std::abs(got.values[i] - wanted.values[i]), std::abs(wanted.values[i]) * 0x1p-23f) << i;
  }
}

TEST_P(Matmul, lanes_report_the_errors_that_their_output_has) {
  const Matrix wanted = read(golden(std::string(GetParam()) + ".y.npy"));
  for (const std::string lane : {"bf16", "s8.group"}) {
    for (const std::string isa : {"", "scalar"}) {
      const std::string y = scratch() / "lane.npy";
      Arguments command = multiply(GetParam(), golden("x.npy"), y);
      command.insert(command.end(), {"--lane", lane});
      if (!isa.empty()) command.insert(command.end(), {"--isa", isa});
      const Json result = octalane_json(command);
      EXPECT_EQ(result["staged"], lane);
      EXPECT_EQ(result["kernel"].get<std::string>().rfind(lane + "_", 0), 0u);
      EXPECT_LE(result["kernel_error"].get<double>(), 1e-6);
      EXPECT_NEAR(distance(read(y), wanted), result["total_error"].get<double>(), 1e-6);
      EXPECT_LT(result["total_error"].get<double>(), lane == "bf16" ? 0.01 : 0.03);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Golden, Matmul, testing::Values("q4_0", "q5_1", "q8_0"));

TEST(MatmulShapes, fortran_order_gives_the_same_bytes) {
  const std::string c = scratch() / "c.npy", f = scratch() / "f.npy";
  octalane_json(multiply("q4_0", golden("x.npy"), c));
  octalane_json(multiply("q4_0", golden("x_fortran.npy"), f));
  EXPECT_NE(read_file(golden("x.npy")), read_file(golden("x_fortran.npy")));
  EXPECT_EQ(read_file(c), read_file(f));
}

TEST(MatmulShapes, no_tokens_give_an_empty_output) {
  const std::string x = scratch() / "none.npy", y = scratch() / "none-out.npy";
  ASSERT_TRUE(write_npy(x, dense_view<const float>(nullptr, 0, 64)));
  for (const bool reference : {false, true}) {
    Arguments command = multiply("q4_0", x, y);
    if (reference) command.emplace_back("--reference");
    const Json result = octalane_json(command);
    EXPECT_EQ(result["shape"], Json({0, 7}));
    EXPECT_EQ(result["kernel"], nullptr) << "nothing ran";
    const Matrix got = read(y);
    EXPECT_EQ(got.rows, 0);
    EXPECT_EQ(got.cols, 7);
  }
}

TEST(MatmulShapes, threads_do_not_change_a_bit) {
  const std::string one = scratch() / "one.npy", three = scratch() / "three.npy";
  Arguments command = multiply("q5_1", golden("x.npy"), one);
  command.insert(command.end(), {"--threads", "1"});
  octalane_json(command);
  command = multiply("q5_1", golden("x.npy"), three);
  command.insert(command.end(), {"--threads", "3"});
  octalane_json(command);
  EXPECT_EQ(read_file(one), read_file(three));
}

}  // namespace
}  // namespace octalane::cli_test
