// Walks the registry: every kernel of every instruction set of this machine, over every kind of weights and ragged
// shapes. "Contract.<kernel>/<weights>/N33_K544_matches" claims, for M of 1 to 33: within the derived tolerance of fp64
// on the same operands and of fp64 on fp32 activations; the same bits as the scalar gemm, so the same bits for any M,
// any split into tiles and any kernel of the lane (kernels with sums in an order of their own: the same bits for any M
// and any split); nothing written outside y; nothing read that was poisoned.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <set>

#include "kernels/all_kernels.h"
#include "kernels/oracle.h"

namespace octalane::test {
namespace {

constexpr int64_t kMostTokens = 33;
constexpr int64_t kTokens[] = {1, 2, 3, 4, 5, 7, 8, 17, 33};

std::set<std::string>& reached_isas() {
  static std::set<std::string> reached;
  return reached;
}

const Kernel& scalar_gemm(StagedType staged) {
  for (const Kernel& kernel : find_isa("scalar")->kernels) {
    if (kernel.staged == staged && kernel.op == Op::gemm) return kernel;
  }
  ADD_FAILURE() << "scalar has no gemm of " << name(staged);
  return find_isa("scalar")->kernels[0];
}

/// One product in one staged type: operands, what the judges want and what the scalar gemm gives. Shared by the tests
/// of all kernels, which run one after another.
struct Case {
  const NamedSpec* spec;
  StagedType staged;
  int64_t rows, cols;
  Planes planes;
  Activations x;
  Judged kernel, total, unrounded;
  std::unique_ptr<Outputs> scalar;

  Case(const NamedSpec& of, StagedType type, int64_t n, int64_t k)
      : spec(&of),
        staged(type),
        rows(n),
        cols(k),
        planes(random_planes(of.spec, n, k, static_cast<uint32_t>(n * 7919 + k))),
        x(Activations::random(kMostTokens, k, static_cast<uint32_t>(k))) {
    const Kernel& gemm = scalar_gemm(type);
    const Packed packed(planes, gemm.order);
    const Formed formed(quantizer(*find_isa("scalar"), gemm.form), gemm.groups(of.spec), x.view(),
                        packed.view().padded_cols());
    kernel = judge_kernel(type, Exactness::order, planes, formed);
    total = judge_total(type, planes, x, formed, kernel);
    if (of.spec.code.is_codebook()) unrounded = judge_kernel(type, Exactness::unrounded, planes, formed);
    scalar = std::make_unique<Outputs>(kMostTokens, n, 3);
    run_in_parts(gemm, packed.view(), formed.view(), scalar->view(), restage_for(gemm, packed.view()));
  }
};

const Case& shared_case(const NamedSpec& spec, StagedType staged, int64_t n, int64_t k) {
  static std::unique_ptr<Case> last;
  if (!last || last->spec != &spec || last->staged != staged || last->rows != n || last->cols != k) {
    last = std::make_unique<Case>(spec, staged, n, k);
  }
  return *last;
}

class Contract : public testing::Test {
 public:
  Contract(const IsaTable& isa, const Kernel& kernel, const NamedSpec& spec, int64_t n, int64_t k)
      : isa_(isa), kernel_(kernel), spec_(spec), rows_(n), cols_(k) {}

  void TestBody() override {
    reached_isas().insert(isa_.name);
    const Case& c = shared_case(spec_, kernel_.staged, rows_, cols_);
    const Packed packed(c.planes, kernel_.order);
    ASSERT_EQ(kernel_.supports(problem_of(kernel_, packed.view(), 1)), "");
    const Formed formed(quantizer(isa_, kernel_.form), kernel_.groups(spec_.spec), c.x.view(),
                        packed.view().padded_cols());
    const std::vector<float> restage = restage_for(kernel_, packed.view());
    Outputs all(std::min(kMostTokens, kernel_.max_tokens), rows_, 3);
    run_in_parts(kernel_, packed.view(), formed.head(all.view().rows), all.view(), restage);
    const Outputs& wanted = kernel_.exactness == Exactness::bits ? *c.scalar : all;
    for (const int64_t tokens : kTokens) {
      if (tokens > kernel_.max_tokens) break;
      SCOPED_TRACE(fmt::format("M = {}", tokens));
      Outputs y(tokens, rows_, 9);
      run_in_parts(kernel_, packed.view(), formed.head(tokens), y.view(), restage);
      ASSERT_EQ(mismatch(kernel_.exactness == Exactness::unrounded ? c.unrounded : c.kernel, as_const(y)), "")
          << "against fp64 on the same operands";
      ASSERT_EQ(mismatch(c.total, as_const(y)), "") << "against fp64 on fp32 activations";
      ASSERT_TRUE(y.canaries_intact());
      for (int64_t m = 0; m < tokens; ++m) {
        for (int64_t n = 0; n < rows_; ++n) ASSERT_EQ(y.at(m, n), wanted.at(m, n)) << "m " << m << " n " << n;
      }
    }
  }

 private:
  static MatrixView<const float> as_const(Outputs& y) {
    const MatrixView<float> v = y.view();
    return {v.data, v.rows, v.cols, v.row_stride, 1};
  }

  const IsaTable& isa_;
  const Kernel& kernel_;
  const NamedSpec& spec_;
  int64_t rows_, cols_;
};

/// Two or three of the ragged column counts for each row count, so that all of both appear.
std::vector<int64_t> column_counts(const WeightSpec& spec, size_t turn) {
  std::vector<int64_t> wanted = {16, 32, 48, 96, 544, 576, 608, 1040, 1536};
  if (spec.scale.nested()) wanted = {256, 512, 1536};
  if (spec.code.is_float()) wanted = {1, 31, 32, 96, 100, 544, 576, 1536};
  if (spec.scale.group >= 64) wanted = {128, 640, 1536};
  if (spec.code.is_codebook()) wanted = {32, 96, 544, 576, 1536};
  std::erase_if(wanted, [&](int64_t k) { return k % column_unit(spec) != 0; });
  std::vector<int64_t> picked;
  for (size_t i = 0; i < 2; ++i) picked.push_back(wanted[(2 * turn + i) % wanted.size()]);
  return picked;
}

void register_case(const IsaTable& isa, const Kernel& kernel, const NamedSpec& spec, int64_t n, int64_t k) {
  const std::string claim = fmt::format("{}/{}/N{}_K{}_matches", name(kernel), spec.name, n, k);
  testing::RegisterTest(
      "Contract", claim.c_str(), nullptr, nullptr, __FILE__, __LINE__,
      [&isa, &kernel, &spec, n, k]() -> testing::Test* { return new Contract(isa, kernel, spec, n, k); });
}

}  // namespace

void register_contract() {
  constexpr int64_t row_counts[] = {1, 7, 8, 31, 33, 96, 200};
  for (const auto& [staged, staged_name, lane, stock] : kStagedTypes) {
    for (const NamedSpec& spec : all_specs()) {
      for (size_t turn = 0; turn < std::size(row_counts); ++turn) {
        for (const int64_t k : column_counts(spec.spec, turn)) {
          for (const IsaTable* isa : isa_tables()) {
            if (!runs(*isa)) continue;
            for (const Kernel& kernel : isa->kernels) {
              if (kernel.staged != staged) continue;
              const Problem problem{.tokens = 1, .rows = 1, .cols = k, .weights = spec.spec, .staged = staged};
              if (kernel.supports(problem).empty()) register_case(*isa, kernel, spec, row_counts[turn], k);
            }
          }
        }
      }
    }
  }
}

const std::set<std::string>& reached() { return reached_isas(); }

}  // namespace octalane::test
