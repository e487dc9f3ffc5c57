// What cuBLASLt is asked for, and which of its algorithms is taken, on a made-up library.
#include "cli/cublaslt.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda/fake_driver.h"

namespace octalane::cli {

struct LtState {};
struct LtMatmulDescState {
  LtCompute compute;
  LtType scale;
  std::vector<int> attributes;
};
struct LtLayoutState {
  LtType type;
  uint64_t rows, cols;
  int64_t stride;
};
struct LtPreferenceState {};

}  // namespace octalane::cli

namespace octalane::test {
namespace {

using namespace cli;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::SizeIs;

std::string failing;
int live = 0, refusing_algo = -1;
struct Product {
  const LtMatmulDescState* desc;
  const void *a, *b, *d;
  LtLayoutState a_layout, b_layout, d_layout;
  int algo;
  double alpha;
};
std::vector<Product> products;

int answer(const char* call) { return failing == call ? 15 : 0; }

template <class State>
int create(const char* call, State** to, State state) {
  if (const int status = answer(call); status != 0) return status;
  *to = new State(std::move(state));
  ++live;
  return 0;
}
template <class State>
int destroy(State* state) {
  delete state;
  --live;
  return 0;
}

/// The three algorithms of the library take these seconds; a fourth proposal is none.
constexpr double kSeconds[] = {3e-3, 1e-3, 2e-3};

int multiply(LtHandle, LtMatmulDesc desc, const void* alpha, const void* a, LtLayout a_layout, const void* b,
             LtLayout b_layout, const void*, const void* c, LtLayout, void* d, LtLayout d_layout, const LtAlgo* algo,
             void*, size_t workspace_bytes, cuda::StreamHandle) {
  EXPECT_EQ(c, d);
  EXPECT_EQ(workspace_bytes, size_t{64} << 20);
  const auto number = static_cast<int>(algo->data[0]);
  if (number == refusing_algo) return 15;
  products.push_back({desc, a, b, d, *a_layout, *b_layout, *d_layout, number,
                      desc->scale == LtType::s32 ? *static_cast<const int32_t*>(alpha)
                                                 : static_cast<double>(*static_cast<const float*>(alpha))});
  return answer("cublasLtMatmul");
}

LtApi fake_cublaslt(const char* failing_call = "") {
  failing = failing_call;
  refusing_algo = -1;
  products.clear();
  LtApi api;
  api.create = [](LtHandle* handle) { return create("cublasLtCreate", handle, {}); };
  api.destroy = [](LtHandle handle) { return destroy(handle); };
  api.get_status_string = [](int) { return "CUBLAS_STATUS_NOT_SUPPORTED"; };
  api.matmul_desc_create = [](LtMatmulDesc* desc, LtCompute compute, LtType scale) {
    return create("cublasLtMatmulDescCreate", desc, {compute, scale, {}});
  };
  api.matmul_desc_destroy = [](LtMatmulDesc desc) { return destroy(desc); };
  api.matmul_desc_set_attribute = [](LtMatmulDesc desc, LtDescAttribute which, const void* value, size_t bytes) {
    desc->attributes.push_back(static_cast<int>(which));
    if (which == LtDescAttribute::transpose_a) {
      EXPECT_TRUE(bytes == 4 && *static_cast<const int32_t*>(value) == 1);
    }
    if (which == LtDescAttribute::fast_accumulation) {
      EXPECT_EQ(bytes, 1u);
    }
    return answer("cublasLtMatmulDescSetAttribute");
  };
  api.matrix_layout_create = [](LtLayout* layout, LtType type, uint64_t rows, uint64_t cols, int64_t stride) {
    return create("cublasLtMatrixLayoutCreate", layout, {type, rows, cols, stride});
  };
  api.matrix_layout_destroy = [](LtLayout layout) { return destroy(layout); };
  api.matmul_preference_create = [](LtPreference* preference) {
    return create("cublasLtMatmulPreferenceCreate", preference, {});
  };
  api.matmul_preference_destroy = [](LtPreference preference) { return destroy(preference); };
  api.matmul_preference_set_attribute = [](LtPreference, LtPreferenceAttribute, const void* value, size_t) {
    EXPECT_EQ(*static_cast<const uint64_t*>(value), uint64_t{64} << 20);
    return answer("cublasLtMatmulPreferenceSetAttribute");
  };
  api.matmul_algo_get_heuristic = [](LtHandle, LtMatmulDesc, LtLayout, LtLayout, LtLayout, LtLayout, LtPreference,
                                     int wanted, LtHeuristic* results, int* count) {
    EXPECT_EQ(wanted, 16);
    for (uint64_t i = 0; i < 4; ++i) results[i] = {.algo = {{i}}, .status = i == 3 ? 15 : 0};
    *count = 4;
    return answer("cublasLtMatmulAlgoGetHeuristic");
  };
  api.matmul_algo_config_get_attribute = [](const LtAlgo* algo, LtAlgoAttribute which, void* value, size_t bytes,
                                            size_t*) {
    EXPECT_EQ(bytes, which == LtAlgoAttribute::cluster ? 2u : 4u);
    if (which == LtAlgoAttribute::id) *static_cast<int*>(value) = 60 + static_cast<int>(algo->data[0]);
    if (which == LtAlgoAttribute::tile) *static_cast<int*>(value) = 23;
    if (which == LtAlgoAttribute::cluster) *static_cast<uint16_t*>(value) = 3;
    return answer("cublasLtMatmulAlgoConfigGetAttribute");
  };
  api.matmul = multiply;
  return api;
}

/// A session whose graphs take the time of the product captured last.
struct Device {
  cuda::DriverApi api = fake_driver();
  Expected<cuda::Session> session;
  Expected<cuda::Stream> stream;

  Device() : session(open(api)), stream(session->stream()) {}
  static Expected<cuda::Session> open(cuda::DriverApi& api) {
    api.graph_instantiate = [](cuda::GraphExecHandle* exec, cuda::GraphHandle, unsigned long long) {
      *exec = reinterpret_cast<cuda::GraphExecHandle>(new double(10 * kSeconds[products.back().algo]));
      ++fake_work().live;
      return 0;
    };
    api.graph_launch = [](cuda::GraphExecHandle exec, cuda::StreamHandle) {
      fake_work().seconds += *reinterpret_cast<double*>(exec);
      return 0;
    };
    api.graph_exec_destroy = [](cuda::GraphExecHandle exec) {
      delete reinterpret_cast<double*>(exec);
      --fake_work().live;
      return 0;
    };
    return cuda::Session::open(api, {});
  }
  Expected<LtProduct> tune(const LtApi& lt, const LtProblem& problem,
                           std::vector<LtOperands> copies = {{256, 512, 768}, {1024, 1280, 1536}}) {
    return LtProduct::tune(lt, *session, *stream, problem, copies);
  }
};

const LtProblem kProblem{.kind = LtKind::bf16, .tokens = 48, .rows = 32, .columns = 64};

TEST(CublasLt, that_is_not_there_is_one_line) {
  const auto api = load_cublaslt("libno_such_cublaslt.so");
  ASSERT_FALSE(api);
  EXPECT_THAT(api.error().message, HasSubstr("cuda: wanted NVIDIA's cuBLASLt, libno_such_cublaslt.so, got: "));
  EXPECT_EQ(load_cublaslt("libm.so.6").error().message,
            "cuda: libm.so.6 has no cublasLtCreate: wanted cuBLASLt of CUDA 12 or newer");
}

TEST(CublasLt, the_fastest_algorithm_is_kept_with_the_times_of_all) {
  Device device;
  const LtApi lt = fake_cublaslt();
  const auto product = device.tune(lt, kProblem);
  ASSERT_TRUE(product) << product.error().message;
  ASSERT_THAT(product->candidates(), SizeIs(3)) << "a proposal with an error is none";
  for (size_t i = 0; i < 3; ++i) {
    EXPECT_THAT(product->candidates()[i].seconds, SizeIs(5));
    EXPECT_NEAR(product->candidates()[i].median, kSeconds[i], 1e-6);
  }
  EXPECT_EQ(describe(product->best()),
            "algo 61, tile 128x256 (23), stages 0, cluster 3, split-K 0, swizzle 0, custom 0");
  products.clear();
  ASSERT_TRUE(product->run({256, 512, 768}, *device.stream));
  EXPECT_EQ(products.back().algo, 1);
}

TEST(CublasLt, an_algorithm_that_cannot_run_is_left_out_with_its_reason) {
  Device device;
  const LtApi lt = fake_cublaslt();
  refusing_algo = 1;
  const auto product = device.tune(lt, kProblem);
  ASSERT_TRUE(product) << product.error().message;
  EXPECT_EQ(product->best().id, 62);
  EXPECT_EQ(product->candidates()[1].failure, "cublaslt: cublasLtMatmul: CUBLAS_STATUS_NOT_SUPPORTED");
}

TEST(CublasLt, multiplies_rows_of_x_by_rows_of_w_in_the_types_of_the_kind) {
  struct Wanted {
    LtKind kind;
    LtType in, out, scale;
    LtCompute compute;
    std::vector<int> attributes;
  };
  for (const Wanted& wanted :
       {Wanted{LtKind::bf16, LtType::bf16, LtType::bf16, LtType::f32, LtCompute::f32, {3}},
        Wanted{LtKind::s8, LtType::s8, LtType::s32, LtType::s32, LtCompute::s32, {3}},
        Wanted{LtKind::f8, LtType::e4m3, LtType::bf16, LtType::f32, LtCompute::f32, {3, 17, 18, 25}}}) {
    Device device;
    const LtApi lt = fake_cublaslt();
    LtProblem problem = kProblem;
    problem.kind = wanted.kind;
    const auto product = device.tune(lt, problem);
    ASSERT_TRUE(product) << product.error().message;
    const Product& seen = products.front();
    EXPECT_EQ(seen.desc->compute, wanted.compute);
    EXPECT_EQ(seen.desc->scale, wanted.scale);
    EXPECT_EQ(seen.desc->attributes, wanted.attributes);
    EXPECT_EQ(seen.alpha, 1);
    // Column-major: w is columns by rows, x columns by tokens, y rows by tokens.
    EXPECT_EQ(reinterpret_cast<uintptr_t>(seen.a), 512u) << "w comes first";
    EXPECT_EQ(reinterpret_cast<uintptr_t>(seen.b), 256u);
    EXPECT_EQ(reinterpret_cast<uintptr_t>(seen.d), 768u);
    EXPECT_TRUE(seen.a_layout.type == wanted.in && seen.a_layout.rows == 64 && seen.a_layout.cols == 32 &&
                seen.a_layout.stride == 64);
    EXPECT_TRUE(seen.b_layout.type == wanted.in && seen.b_layout.rows == 64 && seen.b_layout.cols == 48 &&
                seen.b_layout.stride == 64);
    EXPECT_TRUE(seen.d_layout.type == wanted.out && seen.d_layout.rows == 32 && seen.d_layout.cols == 48 &&
                seen.d_layout.stride == 32);
  }
}

TEST(CublasLt, every_call_that_fails_is_named_and_everything_is_given_back) {
  for (const char* call :
       {"cublasLtCreate", "cublasLtMatmulDescCreate", "cublasLtMatmulDescSetAttribute", "cublasLtMatrixLayoutCreate",
        "cublasLtMatmulPreferenceCreate", "cublasLtMatmulPreferenceSetAttribute", "cublasLtMatmulAlgoGetHeuristic",
        "cublasLtMatmulAlgoConfigGetAttribute", "cublasLtMatmul", ""}) {
    {
      Device device;
      const LtApi lt = fake_cublaslt(call);
      const auto product = device.tune(lt, {.kind = LtKind::f8, .tokens = 16, .rows = 32, .columns = 64});
      EXPECT_EQ(product.has_value(), *call == 0) << call;
      if (!product) {
        EXPECT_THAT(product.error().message, HasSubstr(std::string("cublaslt: ") + call));
      }
    }
    EXPECT_EQ(live, 0) << call;
    EXPECT_EQ(fake_work().live, 0) << call;
  }
}

TEST(CublasLt, what_it_cannot_multiply_is_refused) {
  Device device;
  const LtApi lt = fake_cublaslt();
  EXPECT_EQ(device.tune(lt, kProblem, {}).error().message, "cublaslt: wanted operands, got none");
  EXPECT_EQ(device.tune(lt, kProblem, {{256, 512, 16}}).error().message,
            "cublaslt: wanted addresses that are multiples of 256, got 0x10");
  EXPECT_EQ(device.tune(lt, {.kind = LtKind::f8, .tokens = 1, .rows = 32, .columns = 40}).error().message,
            "cublaslt: wanted rows and columns that are multiples of 16, got 32 x 40");
}

}  // namespace
}  // namespace octalane::test
