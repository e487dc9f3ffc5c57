#include <algorithm>

#include "core/parallel.h"
#include "model/model_state.h"
#include "model/rows.h"

namespace octalane {
namespace {

constexpr int64_t kMaxPiece = 512;           // tokens run together: enough to make weights' decoding cheap
constexpr int64_t kPieceBytes = 24ll << 20;  // aim for the activations of a piece
constexpr int64_t kMinPiece = 16;
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
  Pass(Context& context, const State& state, KvCache& cache, int64_t rows)
      : context_(context),
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
        scores_(context.threads(), start_ + rows) {}

  /// logits: of the last logits.rows rows.
  Status run(std::span<const int32_t> tokens, MatrixView<float> logits) {
    embed(tokens);
    each_row(0, [&](int64_t r) { state_.rope.turns(start_ + r, cosines_.row(r), sines_.row(r)); });
    const int64_t first_wanted = rows_ - logits.rows;
    for (size_t i = 0; i < state_.layers.size(); ++i) {
      // Past the last layer's keys and values, only rows with logits matter.
      const bool last = i + 1 == state_.layers.size();
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

  void embed(std::span<const int32_t> tokens) const {
    if (!state_.embedding) {
      each_row(0, [&](int64_t r) { state_.head.weights.decode_row(tokens[static_cast<size_t>(r)], x_.row(r)); });
      return;
    }
    const FileRows& file = *state_.embedding;
    each_row(0, [&](int64_t r) {
      const Planes planes(file.format->spec, 1, c_.embedding);
      const int64_t offset = tokens[static_cast<size_t>(r)] * file.format->row_bytes(c_.embedding);
      file.format->to_planes(file.data + offset, c_.embedding, planes.row(0));
      decode_row(file.format->spec, planes.row(0), c_.embedding, x_.row(r));
    });
  }

  void norm(const std::vector<float>& weight, int64_t first) const {
    each_row(first,
             [&](int64_t r) { rms_norm(x_.row(r), weight.data(), c_.norm_epsilon, c_.embedding, normed_.row(r)); });
  }

  /// x += y + bias
  void add_residual(const Product& product, const Rows& y, int64_t first) const {
    each_row(first, [&](int64_t r) {
      add_bias(product, y.row(r));
      add(x_.row(r), y.row(r), c_.embedding);
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
    add_residual(layer.output, normed_, first);
    return feed_forward(layer, first);
  }

  Status project(const Layer& layer) {
    norm(layer.attention_norm, 0);
    Activations input(context_, normed_.in(0));
    if (const Status done = layer.q.weights.multiply(context_, input, q_.all()); !done) return done;
    if (const Status done = layer.k.weights.multiply(context_, input, k_.all()); !done) return done;
    return layer.v.weights.multiply(context_, input, v_.all());
  }

  /// Finishes one row's query, key and value, and puts key and value into the cache.
  void place_row(const Layer& layer, int64_t index, int64_t r) const {
    add_bias(layer.q, q_.row(r));
    add_bias(layer.k, k_.row(r));
    add_bias(layer.v, v_.row(r));
    const auto turn = [&](const std::vector<float>& weight, float* head) {
      if (!weight.empty()) rms_norm(head, weight.data(), c_.norm_epsilon, c_.head_dim, head);
      state_.rope.rotate(cosines_.row(r), sines_.row(r), head);
    };
    for (int64_t h = 0; h < c_.heads; ++h) turn(layer.q_norm, q_.row(r) + h * c_.head_dim);
    for (int64_t h = 0; h < c_.kv_heads; ++h) {
      float* key = k_.row(r) + h * c_.head_dim;
      turn(layer.k_norm, key);
      const int64_t at = cache_.row(index, h, start_ + r);
      store_halves(key, c_.head_dim, cache_.keys_.data() + at);
      store_halves(v_.row(r) + h * c_.head_dim, c_.head_dim, cache_.values_.data() + at);
    }
  }

  /// Every query head over its own positions. Heads lie together, rows from both ends inwards, so that equal counts
  /// are equal work.
  void attend(int64_t index, int64_t first) const {
    const int64_t count = rows_ - first;
    const int64_t shared = c_.heads / c_.kv_heads;
    parallel_for(context_.threads(), c_.heads * count, 1, [&](int thread, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t h = i / count, fold = i % count;
        const int64_t r = first + (fold % 2 == 0 ? fold / 2 : count - 1 - fold / 2);
        const int64_t at = cache_.row(index, h / shared, 0);
        context_.attend({.q = q_.row(r) + h * c_.head_dim,
                         .k = cache_.keys_.data() + at,
                         .v = cache_.values_.data() + at,
                         .out = attended_.row(r) + h * c_.head_dim,
                         .scores = scores_.row(thread),
                         .head_dim = c_.head_dim,
                         .positions = start_ + r + 1,
                         .kv_stride = c_.head_dim,
                         .scale = c_.attention_scale});
      }
    });
  }

  Status feed_forward(const Layer& layer, int64_t first) {
    norm(layer.feed_forward_norm, first);
    Activations input(context_, normed_.in(first));
    if (const Status done = layer.gate.weights.multiply(context_, input, gate_.from(first)); !done) return done;
    if (const Status done = layer.up.weights.multiply(context_, input, up_.from(first)); !done) return done;
    each_row(first, [&](int64_t r) {
      add_bias(layer.gate, gate_.row(r));
      add_bias(layer.up, up_.row(r));
      silu_multiply(gate_.row(r), up_.row(r), c_.feed_forward);
    });
    const Status done = layer.down.weights.multiply(context_, gate_.in(first), normed_.from(first));
    if (done) add_residual(layer.down, normed_, first);
    return done;
  }

  Status head(int64_t first, MatrixView<float> logits) {
    if (logits.rows == 0) return {};
    norm(state_.output_norm, first);
    const Status done = state_.head.weights.multiply(context_, normed_.in(first), logits);
    if (done) each_row(first, [&](int64_t r) { add_bias(state_.head, logits.row(r - first)); });
    return done;
  }

  Context& context_;
  const State& state_;
  const ModelConfig& c_;
  KvCache& cache_;
  int64_t start_, rows_;
  Rows x_, normed_, q_, k_, v_, attended_, gate_, up_, cosines_, sines_, scores_;
};

Status Model::forward(Context& context, std::span<const int32_t> tokens, KvCache& cache,
                      MatrixView<float> logits) const {
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
    Pass pass(context, *state_, cache, end - begin);
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
