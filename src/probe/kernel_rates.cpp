#include "probe/kernel_rates.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <memory>
#include <random>

#include "core/half.h"
#include "core/staged_type.h"
#include "formats/additive.h"
#include "linear/linear.h"
#include "probe/timing.h"

namespace octalane {
namespace {

constexpr std::array<int64_t, 9> kTokens{1, 2, 4, 8, 16, 32, 64, 128, kMostRateTokens};
constexpr int kMostCalls = 7;  ///< per kernel and number of tokens
constexpr int kLeastCalls = 3;
constexpr double kEnoughSeconds = 0.01;    ///< fewer calls when they take longer than this together
constexpr double kMostSeconds = 0.01;      ///< a call slower than this is the last of its kernel
constexpr double kHopeless = 8;            ///< times as slow as the fastest ...
constexpr double kHopelessSeconds = 2e-3;  ///< ... and this slow: not measured with more tokens

std::vector<float> normal(int64_t count, float deviation) {
  std::minstd_rand random(1);
  std::normal_distribution<float> draw(0, deviation);
  std::vector<float> values(static_cast<size_t>(count));
  for (float& value : values) value = draw(random);
  return values;
}

/// A matrix and the bytes that it refers to.
struct RandomWeights {
  StoredMatrix matrix;
  std::array<std::vector<std::byte>, kMaxParts> parts;
};

AdditiveMatrix random_additive(const AdditiveShape& shape) {
  AdditiveMatrix matrix{shape, kRateRows, kRateCols, {}, {}, {}};
  std::minstd_rand random(1);
  matrix.codes.resize(static_cast<size_t>(kRateRows * shape.code_bytes(kRateCols)));
  for (uint8_t& code : matrix.codes) code = static_cast<uint8_t>(random() >> 8);
  for (const float value : normal(shape.codebook_values(), 1)) matrix.codebooks.push_back(f32_to_f16(value));
  matrix.scales.assign(static_cast<size_t>(kRateRows * shape.groups(kRateCols)), f32_to_f16(0.02f));
  return matrix;
}

/// A few rows quantized from normal values, again and again: no kernel looks at what the codes are. But codes of
/// codebooks are addresses, so those are all random.
RandomWeights random_weights(const Format& format) {
  constexpr int64_t kDistinctRows = 4;
  RandomWeights weights{{&format, kRateRows, kRateCols, {}}, {}};
  if (format.additive != nullptr) {
    weights.parts = additive_parts(*format.additive, random_additive(format.additive->shape));
    for (size_t i = 0; i < kMaxParts; ++i) weights.matrix.parts[i] = weights.parts[i].data();
    return weights;
  }
  const std::vector<float> values = normal(kDistinctRows * kRateCols, 1 / std::sqrt(static_cast<float>(kRateCols)));
  const int64_t row_bytes = format.row_bytes(kRateCols);
  std::vector<std::byte>& bytes = weights.parts[0];
  bytes.resize(static_cast<size_t>(kRateRows * row_bytes));
  for (int64_t row = 0; row < kRateRows; ++row) {
    std::byte* to = bytes.data() + row * row_bytes;
    if (row < kDistinctRows) {
      format.from_float(values.data() + row * kRateCols, kRateCols, to);
    } else {
      std::copy_n(to - kDistinctRows * row_bytes, row_bytes, to);
    }
  }
  weights.matrix.parts[0] = bytes.data();
  return weights;
}

/// Evicts the weights from every cache.
void make_cold(const Linear& linear) {
#if defined(__x86_64__)
  const std::byte* data = linear.weights().data;
  for (int64_t at = 0; at < linear.bytes(); at += 64) __builtin_ia32_clflush(data + at);
  __builtin_ia32_mfence();
#endif
}

/// One kernel bound to weights of its own.
class Runner {
 public:
  Runner(const Kernel& kernel, Context context, Linear linear)
      : kernel_(&kernel), context_(std::move(context)), linear_(std::move(linear)) {}

  static Expected<Runner> create(const Kernel& kernel, const StoredMatrix& weights) {
    Expected<Context> context =
        Context::create({.threads = 1, .isa = {}, .lane = kernel.staged, .rates = {}, .kernel = &kernel});
    if (!context) return fail_with(context);
    Expected<Linear> linear = Linear::bind(*context, "rates", weights);
    if (!linear) return fail_with(linear);
    return Runner(kernel, std::move(*context), std::move(*linear));
  }

  /// Gets the activations into the kernel's form, and warms up. False when it cannot multiply these.
  bool prepare(MatrixView<const float> x, MatrixView<float> y) {
    if (stopped_ || x.rows > kernel_->max_tokens) return false;
    x_ = std::make_unique<Activations>(context_, x);
    y_ = y;
    calls_ = 0;
    least_ = INFINITY;
    together_ = 0;
    return static_cast<bool>(linear_.multiply(context_, *x_, y_));
  }

  void time_once() {
    if (calls_ >= kLeastCalls && together_ > kEnoughSeconds) return;
    make_cold(linear_);
    const double start = thread_seconds();  // what other programs take of the core does not count
    if (!linear_.multiply(context_, *x_, y_)) return;
    const double took = thread_seconds() - start;
    ++calls_;
    together_ += took;
    least_ = std::min(least_, took);
  }

  double least() const { return least_; }
  void stop() { stopped_ = true; }
  const Kernel& kernel() const { return *kernel_; }
  std::vector<RatePoint> points;

 private:
  const Kernel* kernel_;
  Context context_;
  Linear linear_;
  std::unique_ptr<Activations> x_;
  MatrixView<float> y_;
  int calls_ = 0;
  double least_ = 0, together_ = 0;
  bool stopped_ = false;
};

/// All kernels that take this many tokens, in turns.
void time_tokens(std::vector<Runner>& runners, MatrixView<const float> x, MatrixView<float> y) {
  std::vector<Runner*> running;
  for (Runner& runner : runners) {
    if (runner.prepare(x, y)) running.push_back(&runner);
  }
  for (int call = 0; call < kMostCalls; ++call) {
    for (Runner* runner : running) runner->time_once();
  }
  double fastest = INFINITY;
  for (const Runner* runner : running) fastest = std::min(fastest, runner->least());
  for (Runner* runner : running) {
    runner->points.push_back({x.rows, runner->least() / static_cast<double>(kRateRows * kRateCols)});
    const double least = runner->least();
    if (least > kMostSeconds || (least > kHopelessSeconds && least > kHopeless * fastest)) runner->stop();
  }
}

bool in_lane(const Kernel& kernel, const RatesWanted& wanted) {
  if (wanted.also.contains(kernel.staged)) return true;
  return wanted.lane ? kernel.staged == *wanted.lane : info(kernel.staged).stock;
}

}  // namespace

std::vector<MissingRates> missing_rates(const Rates& rates, const RatesWanted& wanted) {
  std::vector<MissingRates> missing;
  for (const Format* format : wanted.formats) {
    if (format->from_float == nullptr && format->additive == nullptr) continue;
    const auto listed = [&](const MissingRates& other) { return other.format->spec == format->spec; };
    if (std::ranges::any_of(missing, listed)) continue;
    MissingRates group{format, {}};
    bool complete = true;
    for (const IsaTable* isa : wanted.isas) {
      for (const Kernel& kernel : isa->kernels) {
        if (!in_lane(kernel, wanted)) continue;
        if (!kernel.supports({1, kRateRows, kRateCols, format->spec, kernel.staged}).empty()) continue;
        group.kernels.push_back(&kernel);
        complete = complete && rates.find(kernel, format->spec) != nullptr;
      }
    }
    if (!complete) missing.push_back(std::move(group));
  }
  return missing;
}

void measure_missing(const RatesWanted& wanted, Rates& rates, const std::function<bool(int, int)>& progress) {
  const std::vector<MissingRates> missing = missing_rates(rates, wanted);
  if (missing.empty()) return;
  const std::vector<float> x = normal(kMostRateTokens * kRateCols, 1);
  std::vector<float> y(static_cast<size_t>(kMostRateTokens * kRateRows));
  int done = 0;
  for (const auto& [format, kernels] : missing) {
    if (progress && !progress(done++, static_cast<int>(missing.size()))) return;
    const RandomWeights weights = random_weights(*format);
    std::vector<Runner> runners;
    for (const Kernel* kernel : kernels) {
      Expected<Runner> runner = Runner::create(*kernel, weights.matrix);
      if (runner) runners.push_back(std::move(*runner));
    }
    for (const int64_t tokens : kTokens) {
      time_tokens(runners, dense_view<const float>(x.data(), tokens, kRateCols),
                  dense_view(y.data(), tokens, kRateRows));
    }
    for (Runner& runner : runners) {
      if (!runner.points.empty()) rates.set({&runner.kernel(), format->spec, std::move(runner.points)});
    }
  }
}

}  // namespace octalane
