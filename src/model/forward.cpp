#include <algorithm>

#include "core/parallel.h"
#include "core/row_math.h"
#include "model/model_state.h"

namespace octalane {
namespace {

constexpr int64_t kMaxPiece = 512;           // tokens run together: enough to make weights' decoding cheap
constexpr int64_t kPieceBytes = 24ll << 20;  // aim for the activations of a piece
constexpr int64_t kMinPiece = 16;
constexpr int64_t kQueries = 8;          // tokens of a head that read keys and values together
constexpr int64_t kThreadValues = 4096;  // fewer values of a row operation are not worth waking a thread for

/// Tokens per piece: wide models get fewer, so that scratch memory does not grow with them.
int64_t piece_size(const ModelConfig& c) {
  const int64_t values =
      3 * c.embedding + 3 * c.heads * c.head_dim + 2 * c.kv_heads * c.head_dim + 3 * c.feed_forward + c.rope.dimensions;
  return std::clamp<int64_t>(kPieceBytes / (values * static_cast<int64_t>(sizeof(float))), kMinPiece, kMaxPiece);
}

/// rows x cols fp32 values of scratch.
class Rows {
 public:
  Rows(int64_t rows, int64_t cols) : values_(rows * cols), rows_(rows), cols_(cols) {}
  float* row(int64_t r) const { return values_.data() + r * cols_; }
  /// Rows [first, end).
  MatrixView<float> from(int64_t first) const { return dense_view(row(first), rows_ - first, cols_); }
  MatrixView<const float> in(int64_t first) const { return dense_view<const float>(row(first), rows_ - first, cols_); }
  MatrixView<float> all() const { return from(0); }

 private:
  AlignedBuffer<float> values_;
  int64_t rows_, cols_;
};

void add_bias(const Product& product, float* row) {
  if (!product.bias.empty()) add(row, product.bias.data(), static_cast<int64_t>(product.bias.size()));
}

}  // namespace

/// One piece of a prompt on its way through the layers.
class Model::Pass {
 public:
  Pass(Context& context, const State& state, KvCache& cache, const InputObserver& observer, int64_t rows)
      : context_(context),
        observer_(observer),
        state_(state),
        c_(state.config),
        cache_(cache),
        start_(cache.size_),
        rows_(rows),
        x_(rows, c_.embedding),
        normed_(rows, c_.embedding),
        q_(rows, c_.heads * c_.head_dim),
        k_(rows, c_.kv_heads * c_.head_dim),
        v_(rows, c_.kv_heads * c_.head_dim),
        attended_(rows, c_.heads * c_.head_dim),
        gate_(rows, c_.feed_forward),
        up_(rows, c_.feed_forward),
        cosines_(rows, state.rope.pairs()),
        sines_(rows, state.rope.pairs()),
        scores_(context.threads(), score_floats(kQueries, start_ + rows)) {}

  /// logits: of the last logits.rows rows.
  Status run(std::span<const int32_t> tokens, MatrixView<float> logits) {
    embed(tokens);
    each_row(0, [&](int64_t r) { state_.rope.turns(start_ + r, cosines_.row(r), sines_.row(r)); });
    const int64_t first_wanted = rows_ - logits.rows;
    for (size_t i = 0; i < state_.layers.size(); ++i) {
      // Past the last layer's keys and values, only rows with logits matter.
      const bool last = i + 1 == state_.layers.size() && !observer_;
      const Status done = layer(state_.layers[i], static_cast<int64_t>(i), last ? first_wanted : 0);
      if (!done) return done;
    }
    return head(first_wanted, logits);
  }

 private:
  /// body(r) for the rows from `first` on, by as many threads as the work is worth.
  template <class Body>
  void each_row(int64_t first, const Body& body) const {
    const int64_t grain = std::max<int64_t>(1, kThreadValues / c_.embedding);
    parallel_for(context_.threads(), rows_ - first, grain, [&](int, int64_t begin, int64_t end) {
      for (int64_t r = first + begin; r < first + end; ++r) body(r);
    });
  }

  void show(std::span<const Linear* const> products, MatrixView<const float> input) const {
    if (observer_) observer_(products, input);
  }
  void show(const Product& product, MatrixView<const float> input) const {
    const Linear* const weights = &product.weights;
    show({&weights, 1}, input);
  }

  void embed(std::span<const int32_t> tokens) const {
    if (!state_.embedding) {
      each_row(0, [&](int64_t r) { state_.head.weights.decode_row(tokens[static_cast<size_t>(r)], x_.row(r)); });
      return;
    }
    const StoredMatrix& rows = state_.embedding->rows;
    each_row(0, [&](int64_t r) { rows.decode_row(tokens[static_cast<size_t>(r)], x_.row(r)); });
  }

  /// The rows from `first` on, normed into normed_ when a product asks for them.
  Activations normed(const std::vector<float>& weight, int64_t first) {
    return {context_, normed_.in(first), [this, first, w = weight.data()](int64_t r) {
              context_.rows().rms_norm(x_.row(first + r), w, c_.norm_epsilon, c_.embedding, normed_.row(first + r));
            }};
  }

  /// x += y + bias
  void add_residual(const Product& product, const Rows& y, int64_t first) const {
    each_row(first, [&](int64_t r) {
      add_bias(product, y.row(r));
      context_.rows().add(x_.row(r), y.row(r), c_.embedding);
    });
  }

  Status layer(const Layer& layer, int64_t index, int64_t first) {
    if (const Status done = project(layer); !done) return done;
    each_row(0, [&](int64_t r) { place_row(layer, index, r); });
    if (first == rows_) return {};
    attend(index, first);
    if (const Status done = layer.output.weights.multiply(context_, attended_.in(first), normed_.from(first)); !done) {
      return done;
    }
    show(layer.output, attended_.in(first));
    add_residual(layer.output, normed_, first);
    return feed_forward(layer, first);
  }

  Status project(const Layer& layer) {
    Activations input = normed(layer.attention_norm, 0);
    const Linear* const weights[] = {&layer.q.weights, &layer.k.weights, &layer.v.weights};
    const MatrixView<float> outputs[] = {q_.all(), k_.all(), v_.all()};
    const Status done = Linear::multiply(context_, weights, input, outputs);
    if (done) show(weights, input.source());
    return done;
  }

  /// Finishes one row's query, key and value, and puts key and value into the cache.
  void place_row(const Layer& layer, int64_t index, int64_t r) const {
    add_bias(layer.q, q_.row(r));
    add_bias(layer.k, k_.row(r));
    add_bias(layer.v, v_.row(r));
    const auto turn = [&](const std::vector<float>& weight, float* head) {
      if (!weight.empty()) context_.rows().rms_norm(head, weight.data(), c_.norm_epsilon, c_.head_dim, head);
      state_.rope.rotate(cosines_.row(r), sines_.row(r), head);
    };
    for (int64_t h = 0; h < c_.heads; ++h) turn(layer.q_norm, q_.row(r) + h * c_.head_dim);
    for (int64_t h = 0; h < c_.kv_heads; ++h) {
      float* key = k_.row(r) + h * c_.head_dim;
      turn(layer.k_norm, key);
      const int64_t position = start_ + r;
      uint16_t* block = cache_.keys(index, h) + position / kKeyBlock * kKeyBlock * c_.head_dim;
      store_halves(key, c_.head_dim, block + position % kKeyBlock, kKeyBlock);
      const int64_t stride = value_stride(c_.head_dim);
      uint16_t* value = cache_.values(index, h) + position * stride;
      store_halves(v_.row(r) + h * c_.head_dim, c_.head_dim, value, 1);
      std::fill(value + c_.head_dim, value + stride, uint16_t{0});
    }
  }

  /// Every query head over its own positions, a few tokens together. Heads lie together, tokens from both ends inwards,
  /// so that equal counts are equal work.
  void attend(int64_t index, int64_t first) const {
    const int64_t blocks = (rows_ - first + kQueries - 1) / kQueries;
    const int64_t shared = c_.heads / c_.kv_heads;
    parallel_for(context_.threads(), c_.heads * blocks, 1, [&](int thread, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t h = i / blocks, fold = i % blocks;
        const int64_t r = first + (fold % 2 == 0 ? fold / 2 : blocks - 1 - fold / 2) * kQueries;
        context_.attend({.q = q_.row(r) + h * c_.head_dim,
                         .q_stride = c_.heads * c_.head_dim,
                         .k = cache_.keys(index, h / shared),
                         .v = cache_.values(index, h / shared),
                         .out = attended_.row(r) + h * c_.head_dim,
                         .out_stride = c_.heads * c_.head_dim,
                         .scores = scores_.row(thread),
                         .head_dim = c_.head_dim,
                         .queries = std::min(kQueries, rows_ - r),
                         .positions = start_ + r + 1,
                         .scale = c_.attention_scale});
      }
    });
  }

  Status feed_forward(const Layer& layer, int64_t first) {
    Activations input = normed(layer.feed_forward_norm, first);
    const Linear* const weights[] = {&layer.gate.weights, &layer.up.weights};
    const MatrixView<float> outputs[] = {gate_.from(first), up_.from(first)};
    if (const Status done = Linear::multiply(context_, weights, input, outputs); !done) return done;
    show(weights, input.source());
    Activations gated(context_, gate_.in(first), [&](int64_t r) {
      float* gate = gate_.row(first + r);
      float* up = up_.row(first + r);
      add_bias(layer.gate, gate);
      add_bias(layer.up, up);
      context_.rows().silu_multiply(gate, up, c_.feed_forward);
    });
    const Status done = layer.down.weights.multiply(context_, gated, normed_.from(first));
    if (!done) return done;
    show(layer.down, gated.source());
    add_residual(layer.down, normed_, first);
    return {};
  }

  Status head(int64_t first, MatrixView<float> logits) {
    if (logits.rows == 0) return {};
    Activations input = normed(state_.output_norm, first);
    const Status done = state_.head.weights.multiply(context_, input, logits);
    if (!done) return done;
    show(state_.head, input.source());
    each_row(first, [&](int64_t r) { add_bias(state_.head, logits.row(r - first)); });
    return {};
  }

  Context& context_;
  const InputObserver& observer_;
  const State& state_;
  const ModelConfig& c_;
  KvCache& cache_;
  int64_t start_, rows_;
  Rows x_, normed_, q_, k_, v_, attended_, gate_, up_, cosines_, sines_, scores_;
};

Status Model::forward(Context& context, std::span<const int32_t> tokens, KvCache& cache, MatrixView<float> logits,
                      const InputObserver& observer) const {
  const ModelConfig& c = state_->config;
  const auto count = static_cast<int64_t>(tokens.size());
  if (cache.layers_ != c.layers || cache.kv_heads_ != c.kv_heads || cache.head_dim_ != c.head_dim) {
    return fail("KV cache: wanted {} layers x {} heads x {}, got {} x {} x {}", c.layers, c.kv_heads, c.head_dim,
                cache.layers_, cache.kv_heads_, cache.head_dim_);
  }
  if (count > cache.capacity_ - cache.size_) {
    return fail("KV cache: wanted room for {} more positions, got {} ({} of {} are used)", count,
                cache.capacity_ - cache.size_, cache.size_, cache.capacity_);
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    if (tokens[i] < 0 || tokens[i] >= c.vocabulary) {
      return fail("token {}: wanted 0 to {}, got {}", i, c.vocabulary - 1, tokens[i]);
    }
  }
  if (logits.rows < 0 || logits.rows > count || !logits.contiguous_rows() ||
      (logits.rows > 0 && logits.cols != c.vocabulary)) {
    return fail("logits: wanted at most {} rows x {} row-major, got {} x {} (column stride {})", count, c.vocabulary,
                logits.rows, logits.cols, logits.col_stride);
  }
  const int64_t piece = piece_size(c), before = cache.size_;
  for (int64_t begin = 0; begin < count; begin += piece) {
    const int64_t end = std::min(count, begin + piece);
    // Rows of `logits` that belong to tokens [begin, end).
    const int64_t first_logits = count - logits.rows;
    const int64_t from = std::clamp(first_logits, begin, end);
    const int64_t skipped = std::max<int64_t>(0, begin - first_logits);
    MatrixView<float> part = logits;
    part.rows = end - from;
    if (part.rows > 0) part.data = logits.row(skipped);
    Pass pass(context, *state_, cache, observer, end - begin);
    const Status done = pass.run(tokens.subspan(static_cast<size_t>(begin), static_cast<size_t>(end - begin)), part);
    if (!done) {
      cache.truncate(before);
      return done;
    }
    cache.size_ += end - begin;
  }
  return {};
}

}  // namespace octalane
