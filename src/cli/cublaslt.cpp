#include "cli/cublaslt.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <optional>

#include "cli/command.h"

namespace octalane::cli {
namespace {

struct Types {
  LtType in, out, scale;
  LtCompute compute;
};

Types types_of(LtKind kind) {
  switch (kind) {
    case LtKind::bf16: return {LtType::bf16, LtType::bf16, LtType::f32, LtCompute::f32};
    case LtKind::s8: return {LtType::s8, LtType::s32, LtType::s32, LtCompute::s32};
    case LtKind::f8: break;
  }
  return {LtType::e4m3, LtType::bf16, LtType::f32, LtCompute::f32};
}

void* pointer(cuda::Address address) { return reinterpret_cast<void*>(static_cast<uintptr_t>(address)); }

/// Those of cublasLt.h's tiles that are usual on Hopper; "" of others.
const char* tile_text(int tile) {
  constexpr std::pair<int, const char*> kTiles[] = {
      {15, "64x64"},    {17, "64x128"},  {18, "128x64"},   {19, "64x256"},   {20, "128x128"}, {21, "256x64"},
      {23, "128x256"},  {24, "256x128"}, {29, "128x160"},  {31, "192x128"},  {32, "128x192"}, {116, "64x192"},
      {176, "128x320"}, {208, "192x64"}, {210, "192x256"}, {232, "256x192"}, {513, "256x256"}};
  for (const auto& [number, text] : kTiles) {
    if (number == tile) return text;
  }
  return "";
}

Status check_problem(const LtProblem& problem, std::span<const LtOperands> copies) {
  if (copies.empty()) return fail("cublaslt: wanted operands, got none");
  for (const LtOperands& operands : copies) {
    for (const cuda::Address address : {operands.x, operands.w, operands.y}) {
      if (address % 256 != 0) return fail("cublaslt: wanted addresses that are multiples of 256, got {:#x}", address);
    }
  }
  const int64_t unit = problem.kind == LtKind::f8 ? 16 : problem.kind == LtKind::s8 ? 4 : 1;
  if (problem.columns % unit == 0 && problem.rows % unit == 0) return {};
  return fail("cublaslt: wanted rows and columns that are multiples of {}, got {} x {}", unit, problem.rows,
              problem.columns);
}

}  // namespace

std::string describe(const LtCandidate& candidate) {
  const char* const text = tile_text(candidate.tile);
  return fmt::format("algo {}, tile {}{}({}), stages {}, cluster {}, split-K {}, swizzle {}, custom {}", candidate.id,
                     text, *text != 0 ? " " : "", candidate.tile, candidate.stages, candidate.cluster,
                     candidate.split_k, candidate.swizzle, candidate.custom);
}

LtProduct::LtProduct(const LtApi& api, const LtProblem& problem, cuda::Buffer workspace, cuda::Buffer scale)
    : api_(&api),
      problem_(problem),
      workspace_(std::move(workspace)),
      scale_(std::move(scale)),
      handle_(nullptr, api.destroy),
      desc_(nullptr, api.matmul_desc_destroy),
      w_(nullptr, api.matrix_layout_destroy),
      x_(nullptr, api.matrix_layout_destroy),
      y_(nullptr, api.matrix_layout_destroy) {}

// cuBLASLt is column-major: its y is ours transposed, rows by tokens; its first operand is w, of columns by rows, to be
// transposed; its second is x, of columns by tokens.
Status LtProduct::describe_problem() {
  const LtApi& api = *api_;
  const Types types = types_of(problem_.kind);
  LtHandle handle = nullptr;
  if (const Status s = check(api, api.create(&handle), "cublasLtCreate"); !s) return s;
  handle_.reset(handle);
  LtMatmulDesc desc = nullptr;
  const int made = api.matmul_desc_create(&desc, types.compute, types.scale);
  if (const Status s = check(api, made, "cublasLtMatmulDescCreate"); !s) return s;
  desc_.reset(desc);
  const auto set = [&](LtDescAttribute which, const auto& value) {
    return check(api, api.matmul_desc_set_attribute(desc, which, &value, sizeof value),
                 fmt::format("cublasLtMatmulDescSetAttribute of attribute {}", static_cast<int>(which)));
  };
  constexpr int32_t kTranspose = 1;
  if (const Status s = set(LtDescAttribute::transpose_a, kTranspose); !s) return s;
  if (problem_.kind == LtKind::f8) {
    const void* const scale = pointer(scale_.address());
    if (const Status s = set(LtDescAttribute::scale_of_a, scale); !s) return s;
    if (const Status s = set(LtDescAttribute::scale_of_b, scale); !s) return s;
    const int8_t fast = problem_.fast_accumulation ? 1 : 0;
    if (const Status s = set(LtDescAttribute::fast_accumulation, fast); !s) return s;
  }
  const auto layout = [&](Owned<LtLayoutState>& to, LtType type, int64_t rows, int64_t cols) {
    LtLayout created = nullptr;
    const int result =
        api.matrix_layout_create(&created, type, static_cast<uint64_t>(rows), static_cast<uint64_t>(cols), rows);
    if (result == 0) to.reset(created);
    return check(api, result, fmt::format("cublasLtMatrixLayoutCreate of {} x {}", rows, cols));
  };
  if (const Status s = layout(w_, types.in, problem_.columns, problem_.rows); !s) return s;
  if (const Status s = layout(x_, types.in, problem_.columns, problem_.tokens); !s) return s;
  return layout(y_, types.out, problem_.rows, problem_.tokens);
}

Status LtProduct::propose(int wanted) {
  const LtApi& api = *api_;
  LtPreference created = nullptr;
  const int made = api.matmul_preference_create(&created);
  if (const Status s = check(api, made, "cublasLtMatmulPreferenceCreate"); !s) return s;
  const Owned<LtPreferenceState> preference(created, api.matmul_preference_destroy);
  const auto workspace = static_cast<uint64_t>(workspace_.bytes());
  const int set = api.matmul_preference_set_attribute(created, LtPreferenceAttribute::most_workspace_bytes, &workspace,
                                                      sizeof workspace);
  if (const Status s = check(api, set, "cublasLtMatmulPreferenceSetAttribute"); !s) return s;
  std::vector<LtHeuristic> found(static_cast<size_t>(wanted));
  int count = 0;
  const int asked = api.matmul_algo_get_heuristic(handle_.get(), desc_.get(), w_.get(), x_.get(), y_.get(), y_.get(),
                                                  created, wanted, found.data(), &count);
  if (const Status s = check(api, asked, "cublasLtMatmulAlgoGetHeuristic"); !s) return s;
  found.resize(static_cast<size_t>(count));
  for (const LtHeuristic& each : found) {
    if (each.status != 0) continue;
    LtCandidate candidate{.algo = each.algo, .workspace_bytes = each.workspace_bytes, .waves = each.waves};
    // 32 bits each, but the cluster has 16.
    const std::pair<LtAlgoAttribute, int*> wide[] = {
        {LtAlgoAttribute::id, &candidate.id},           {LtAlgoAttribute::tile, &candidate.tile},
        {LtAlgoAttribute::split_k, &candidate.split_k}, {LtAlgoAttribute::swizzle, &candidate.swizzle},
        {LtAlgoAttribute::custom, &candidate.custom},   {LtAlgoAttribute::stages, &candidate.stages}};
    size_t written = 0;
    for (const auto& [which, to] : wide) {
      const int got = api.matmul_algo_config_get_attribute(&candidate.algo, which, to, sizeof *to, &written);
      const std::string call = fmt::format("cublasLtMatmulAlgoConfigGetAttribute of {}", static_cast<int>(which));
      if (const Status s = check(api, got, call); !s) return s;
    }
    uint16_t cluster = 0;
    const int got = api.matmul_algo_config_get_attribute(&candidate.algo, LtAlgoAttribute::cluster, &cluster,
                                                         sizeof cluster, &written);
    if (const Status s = check(api, got, "cublasLtMatmulAlgoConfigGetAttribute of 8"); !s) return s;
    candidate.cluster = cluster;
    candidates_.push_back(std::move(candidate));
  }
  if (!candidates_.empty()) return {};
  return fail("cublaslt: {} x {} x {}: wanted an algorithm, the heuristics have none", problem_.tokens, problem_.rows,
              problem_.columns);
}

Status LtProduct::run(const LtCandidate& candidate, const LtOperands& operands, const cuda::Stream& stream) const {
  // One and zero of the scale's type.
  const float one = 1, zero = 0;
  const int32_t whole_one = 1, whole_zero = 0;
  const bool whole = problem_.kind == LtKind::s8;
  const void* const alpha = whole ? static_cast<const void*>(&whole_one) : &one;
  const void* const beta = whole ? static_cast<const void*>(&whole_zero) : &zero;
  void* const y = pointer(operands.y);
  const int done =
      api_->matmul(handle_.get(), desc_.get(), alpha, pointer(operands.w), w_.get(), pointer(operands.x), x_.get(),
                   beta, y, y_.get(), y, y_.get(), &candidate.algo, pointer(workspace_.address()),
                   static_cast<size_t>(workspace_.bytes()), stream.handle());
  return check(*api_, done, "cublasLtMatmul");
}

Expected<cuda::Graph> LtProduct::capture(const LtCandidate& candidate, std::span<const LtOperands> copies, int launches,
                                         const cuda::Stream& stream) const {
  // Once outside of the graph: loading a kernel is not for a capture.
  const Status once = run(candidate, copies.front(), stream);
  if (!once) return fail_with(once);
  if (const Status s = stream.synchronize(); !s) return fail_with(s);
  return cuda::Graph::capture(stream, [&]() -> Status {
    for (int i = 0; i < launches; ++i) {
      if (const Status s = run(candidate, copies[static_cast<size_t>(i) % copies.size()], stream); !s) return s;
    }
    return {};
  });
}

/// A candidate that cannot be launched is kept with the reason. A sample is a graph of launches, behind one that warms
/// up.
Status LtProduct::time_all(std::span<const LtOperands> copies, const LtTuning& tuning, const cuda::Stream& stream,
                           const cuda::Event& begin, const cuda::Event& end) {
  std::vector<std::optional<cuda::Graph>> graphs(candidates_.size());
  for (size_t i = 0; i < candidates_.size(); ++i) {
    Expected<cuda::Graph> graph = capture(candidates_[i], copies, tuning.launches, stream);
    if (graph) {
      graphs[i].emplace(std::move(*graph));
    } else {
      candidates_[i].failure = graph.error().message;
    }
  }
  for (int round = 0; round < tuning.rounds; ++round) {
    for (size_t i = 0; i < candidates_.size(); ++i) {
      if (!graphs[i]) continue;
      if (const Status s = graphs[i]->launch(stream); !s) return s;
      if (const Status s = begin.record(stream); !s) return s;
      if (const Status s = graphs[i]->launch(stream); !s) return s;
      if (const Status s = end.record(stream); !s) return s;
      const Expected<double> seconds = cuda::Event::seconds_between(begin, end);
      if (!seconds) return fail_with(seconds);
      candidates_[i].seconds.push_back(*seconds / tuning.launches);
    }
  }
  double best = std::numeric_limits<double>::infinity();
  for (size_t i = 0; i < candidates_.size(); ++i) {
    if (candidates_[i].seconds.empty()) continue;
    candidates_[i].median = median(candidates_[i].seconds);
    if (candidates_[i].median >= best) continue;
    best = candidates_[i].median;
    best_ = i;
  }
  if (candidates_[best_].seconds.empty()) return fail("{} (and no other algorithm ran)", candidates_[best_].failure);
  return {};
}

Expected<LtProduct> LtProduct::tune(const LtApi& api, const cuda::Session& session, const cuda::Stream& stream,
                                    const LtProblem& problem, std::span<const LtOperands> copies,
                                    const LtTuning& tuning) {
  if (const Status s = check_problem(problem, copies); !s) return fail_with(s);
  Expected<cuda::Buffer> workspace = session.allocate(tuning.workspace_bytes);
  if (!workspace) return fail_with(workspace);
  Expected<cuda::Buffer> scale = session.allocate(sizeof(float));
  if (!scale) return fail_with(scale);
  const float one = 1;
  if (const Status s = session.copy_in(*scale, std::as_bytes(std::span(&one, 1))); !s) return fail_with(s);
  Expected<cuda::Event> begin = session.event();
  if (!begin) return fail_with(begin);
  Expected<cuda::Event> end = session.event();
  if (!end) return fail_with(end);
  LtProduct product(api, problem, std::move(*workspace), std::move(*scale));
  if (const Status s = product.describe_problem(); !s) return fail_with(s);
  if (const Status s = product.propose(tuning.candidates); !s) return fail_with(s);
  if (const Status s = product.time_all(copies, tuning, stream, *begin, *end); !s) return fail_with(s);
  return product;
}

}  // namespace octalane::cli
