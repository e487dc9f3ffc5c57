#include "cuda/additive.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "cli/random_blocks.h"
#include "core/half.h"
#include "cuda/additive_frozen.h"
#include "cuda/additive_product.h"
#include "weights/pack.h"

namespace octalane::bench {
namespace {

using cli::Json;
using cuda::AdditiveKernel;
using cuda::AdditiveProducts;

constexpr const char* kFormat = "additive-m2v8-g128";

struct Fixture {
  PackedWeights weights;
  std::vector<float> x;

  double reference(int64_t m, int64_t n) const {
    const PackedView& w = weights.view();
    const Planes planes(w.spec, 1, w.cols, w.codebooks.values);
    unpack_row(w, n, planes.row(0));
    std::vector<float> row(static_cast<size_t>(w.cols));
    decode_row(w.spec, planes.row(0), w.cols, row.data());
    double sum = 0;
    for (int64_t k = 0; k < w.cols; ++k)
      sum += double{x[static_cast<size_t>(m * w.cols + k)]} * row[static_cast<size_t>(k)];
    return sum;
  }
};

Fixture make_fixture(const AdditiveOptions& options, int64_t tokens) {
  const Format& format = *find_format(kFormat);
  const double deviation = 1 / std::sqrt(static_cast<double>(options.cols));
  const cli::RandomMatrix random = cli::random_matrix(format, options.rows, options.cols, deviation, options.seed, 1);
  Fixture fixture{
      PackedWeights::pack(
          format.spec, {.rows = 16}, options.rows, options.cols, 1,
          [&](int64_t row, const PlaneRow& out) { random.matrix.to_planes(row, out); }, random.matrix.codebooks()),
      std::vector<float>(static_cast<size_t>(tokens * options.cols))};
  cli::Gaussian(options.seed + 1).fill(fixture.x, 1);
  return fixture;
}

/// Operands of a launch, in memory of their own.
struct Copy {
  cuda::CodebookWeights weights;
  cuda::Buffer x, y;
};

struct Candidate {
  std::string arm;
  const AdditiveProducts* products;
  const AdditiveKernel* kernel;
};

class Bench {
 public:
  static Expected<Bench> create(const cuda::Session& session, const cuda::Stream& stream,
                                const AdditiveOptions& options) {
    Expected<AdditiveProducts> own = AdditiveProducts::load(session);
    if (!own) return fail_with(own);
    Expected<AdditiveProducts> frozen = AdditiveProducts::load(session, frozen_code(), frozen_kernels());
    if (!frozen) return fail_with(frozen);
    Bench bench(session, stream, options, std::move(*own), std::move(*frozen));
    if (const Status made = bench.make_copies(); !made) return fail_with(made);
    return bench;
  }

  Expected<Json> measure(int64_t tokens) const {
    const std::vector<Candidate> candidates = candidates_for(tokens);
    const Expected<double> error = check(candidates, tokens);
    if (!error) return fail_with(error);
    std::vector<cli::Arm> arms;
    for (const Candidate& by : candidates) {
      arms.push_back(
          {by.arm, static_cast<int64_t>(copies_.size()), [this, &by, tokens](const cuda::Stream&, int64_t i) {
             return multiply(by, tokens, copies_[static_cast<size_t>(i) % copies_.size()]);
           }});
    }
    const Expected<cli::RotationResult> result = cli::time_arms(*session_, *stream_, arms, options_->rotation);
    if (!result) return fail_with(result);
    const double ops = 2.0 * static_cast<double>(tokens) * static_cast<double>(options_->rows * options_->cols);
    Json json = {{"tokens", tokens}, {"same_bits", true}, {"total_error", *error}, {"arms", Json::array()}};
    double fastest_baseline = 0;
    for (size_t i = 0; i < candidates.size(); ++i) {
      const cli::ArmSamples& samples = result->arms[i];
      Json arm = {{"name", candidates[i].arm},
                  {"kernel", cuda::name(*candidates[i].kernel)},
                  {"function", candidates[i].kernel->function},
                  {"tensor_books", candidates[i].kernel->tensor_books},
                  {"tflops", ops / cli::median(samples.seconds) * 1e-12}};
      arm.update(cli::samples_json(samples));
      json["arms"].push_back(std::move(arm));
      if (candidates[i].kernel->tokens != kFrozenTokens) continue;
      const double speedup = cli::median_speedup(result->arms[0], samples);
      fastest_baseline = fastest_baseline == 0 ? speedup : std::min(fastest_baseline, speedup);
    }
    json["reuse_over_fastest_frozen"] = fastest_baseline;
    return json;
  }

  Json about() const {
    return {{"format", kFormat},
            {"rows", options_->rows},
            {"cols", options_->cols},
            {"split", copies_[0].weights.about().split},
            {"copies", copies_.size()},
            {"weight_bytes", copies_[0].weights.bytes()},
            {"rotation", cli::rotation_json(options_->rotation)}};
  }

 private:
  static constexpr int kFrozenTokens = 16;

  Bench(const cuda::Session& session, const cuda::Stream& stream, const AdditiveOptions& options, AdditiveProducts own,
        AdditiveProducts frozen)
      : session_(&session),
        stream_(&stream),
        options_(&options),
        own_(std::move(own)),
        frozen_(std::move(frozen)),
        most_(*std::max_element(options.tokens.begin(), options.tokens.end())),
        fixture_(make_fixture(options, most_)) {}

  Status make_copies() {
    const Expected<cuda::CodebookRecords> records = cuda::pack_codebooks(fixture_.weights.view(), 1);
    if (!records) return fail_with(records);
    Expected<cuda::Buffer> raw = session_->upload(std::as_bytes(std::span(fixture_.x)));
    if (!raw) return fail_with(raw);
    const auto weight_bytes = static_cast<int64_t>(records->codes.size() + records->scales.size() * 2);
    const int64_t count = cli::copies_beyond_l2(weight_bytes, session_->device().l2_bytes);
    for (int64_t i = 0; i < count; ++i) {
      Expected<cuda::CodebookWeights> weights = cuda::CodebookWeights::upload(*session_, *records);
      if (!weights) return fail_with(weights);
      Expected<cuda::Buffer> x = session_->allocate(most_ * records->padded_cols * 2);
      if (!x) return fail_with(x);
      Expected<cuda::Buffer> y = session_->allocate(most_ * stride() * 2);
      if (!y) return fail_with(y);
      const Status staged =
          own_.stage({raw->address(), true, most_, options_->cols, options_->cols}, x->address(), *stream_);
      if (!staged) return staged;
      copies_.push_back({std::move(*weights), std::move(*x), std::move(*y)});
    }
    return stream_->synchronize();
  }

  /// "reuse" first, then the baselines, then variants.
  std::vector<Candidate> candidates_for(int64_t tokens) const {
    const cuda::CodebookRecords& weights = copies_[0].weights.about();
    const AdditiveKernel* const reuse = cuda::choose_additive_kernel(weights, tokens);
    std::vector<Candidate> found{{"reuse", &own_, reuse}};
    for (const bool baseline : {true, false}) {
      for (const AdditiveKernel& kernel : frozen_kernels()) {
        const bool is_baseline = kernel.tokens == kFrozenTokens;
        if (is_baseline != baseline || !cuda::why_not(kernel, weights).empty()) continue;
        if (!is_baseline && (!options_->variants || kernel.tokens != reuse->tokens)) continue;
        found.push_back({kernel.function, &frozen_, &kernel});
      }
    }
    return found;
  }

  /// y's rows begin at multiples of 16 bytes.
  int64_t stride() const { return (options_->rows + 7) / 8 * 8; }

  Status multiply(const Candidate& by, int64_t tokens, const Copy& copy) const {
    return by.products->multiply(*by.kernel, copy.weights, {tokens, copy.x.address()},
                                 {copy.y.address(), false, stride()}, *stream_);
  }

  /// All bits are those of the first; its relative distance from fp64 on spread outputs.
  Expected<double> check(const std::vector<Candidate>& candidates, int64_t tokens) const {
    const Copy& copy = copies_[0];
    const auto count = static_cast<size_t>(tokens * stride());
    std::vector<uint16_t> wanted(count), y(count);
    for (const Candidate& by : candidates) {
      if (const Status s = stream_->fill(copy.y.address(), 0xFF, copy.y.bytes()); !s) return fail_with(s);
      if (const Status s = multiply(by, tokens, copy); !s) return fail_with(s);
      const auto bytes = std::as_writable_bytes(std::span(&by == &candidates[0] ? wanted : y));
      if (const Status s = stream_->copy_out(bytes, copy.y.address()); !s) return fail_with(s);
      if (const Status s = stream_->synchronize(); !s) return fail_with(s);
      if (&by != &candidates[0] && y != wanted) {
        return fail("{} tokens: {}: wanted the bits of {}, got others: not timed", tokens, by.kernel->function,
                    candidates[0].kernel->function);
      }
    }
    double difference = 0, reference = 0;
    for (int64_t i = 0; i < 64; ++i) {
      const int64_t m = i % tokens, n = i * 7919 % options_->rows;
      const double exact = fixture_.reference(m, n);
      const double got = bf16_to_f32(wanted[static_cast<size_t>(m * stride() + n)]);
      difference += (got - exact) * (got - exact);
      reference += exact * exact;
    }
    const double error = std::sqrt(difference / reference);
    if (!(error < 0.01))
      return fail("{} tokens: wanted a total error below 0.01, got {:.2e}: not timed", tokens, error);
    return error;
  }

  const cuda::Session* session_;
  const cuda::Stream* stream_;
  const AdditiveOptions* options_;
  AdditiveProducts own_, frozen_;
  int64_t most_;  ///< tokens
  Fixture fixture_;
  std::vector<Copy> copies_;
};

}  // namespace

Expected<Json> additive_bench(const cuda::Session& session, const cuda::Stream& stream,
                              const AdditiveOptions& options) {
  if (options.tokens.empty() || options.rows < 1 || options.cols < 32 || options.cols % 32 != 0) {
    return fail("bench: wanted tokens, rows and a multiple of 32 columns, got {} x {}", options.rows, options.cols);
  }
  const Expected<Bench> bench = Bench::create(session, stream, options);
  if (!bench) return fail_with(bench);
  Json json = bench->about();
  json["tokens"] = Json::array();
  for (const int64_t tokens : options.tokens) {
    Expected<Json> measured = bench->measure(tokens);
    if (!measured) return fail_with(measured);
    json["tokens"].push_back(std::move(*measured));
  }
  return json;
}

}  // namespace octalane::bench
