// One ggml_mul_mat through every place that ggml's CPU backend has for weights: the plain buffer and its extra buffer
// types (CPU_REPACK, AMX, ...), each packed by ggml itself. ggml quantizes the random data that octalane quantizes.
#include <ggml-alloc.h>
#include <ggml-backend.h>
#include <ggml.h>

#include <cmath>
#include <cstring>

#include "core/parallel.h"
#include "driver.h"

namespace octalane::peers {
namespace {

struct FreeContext {
  void operator()(ggml_context* context) const { ggml_free(context); }
};
struct FreeBuffer {
  void operator()(ggml_backend_buffer_t buffer) const { ggml_backend_buffer_free(buffer); }
};
using ContextPtr = std::unique_ptr<ggml_context, FreeContext>;
using BufferPtr = std::unique_ptr<ggml_backend_buffer, FreeBuffer>;

/// Tensors without data, to be allocated in a buffer.
ContextPtr make_context(int64_t tensors) {
  const auto count = static_cast<size_t>(tensors);
  return ContextPtr(
      ggml_init({ggml_tensor_overhead() * count + ggml_graph_overhead_custom(count, false), nullptr, true}));
}

/// The weights in one place.
struct Placed {
  std::string buffer_type;
  ContextPtr context;
  BufferPtr buffer;
  std::vector<ggml_tensor*> copies;
};

/// Products in one graph: a model pays a thread's wake-up once a graph, not once a product. Most for one token.
int64_t nodes_for(int64_t tokens) { return std::max<int64_t>(1, 16 / std::max<int64_t>(1, tokens / 8)); }

class GgmlArm : public Arm {
 public:
  GgmlArm(ggml_backend_t backend, const Placed& placed, const Format& format, const std::vector<std::byte>& bytes,
          const Matrix& x)
      : backend_(backend), placed_(placed), format_(format), bytes_(bytes) {
    const int64_t nodes = nodes_for(x.rows);
    context_ = make_context(2 * nodes + 8);
    ggml_tensor* input = ggml_new_tensor_2d(context_.get(), GGML_TYPE_F32, x.cols, x.rows);
    graph_ = ggml_new_graph_custom(context_.get(), static_cast<size_t>(nodes + 8), false);
    for (int64_t i = 0; i < nodes; ++i) {
      products_.push_back(ggml_mul_mat(context_.get(), placed.copies.front(), input));
      ggml_build_forward_expand(graph_, products_.back());
    }
    buffer_.reset(ggml_backend_alloc_ctx_tensors(context_.get(), backend));
    ggml_backend_tensor_set(input, x.values.data(), 0, ggml_nbytes(input));
  }

  Json cell() const override {
    return {{"kernel", "mul_mat " + placed_.buffer_type}, {"staged", nullptr}, {"format", format_.name}};
  }
  int64_t weight_bytes() const override { return static_cast<int64_t>(bytes_.size()); }
  int64_t products_per_call() const override { return static_cast<int64_t>(products_.size()); }

  Status multiply() override {
    for (ggml_tensor* product : products_) product->src[0] = placed_.copies[next_copy_++ % placed_.copies.size()];
    if (ggml_backend_graph_compute(backend_, graph_) != GGML_STATUS_SUCCESS) return fail("ggml: the graph failed");
    return {};
  }
  void output(MatrixView<float> y) const override {
    ggml_backend_tensor_get(products_.back(), y.data, 0, ggml_nbytes(products_.back()));
  }
  void decode_row(int64_t row, float* out) const override {
    const int64_t cols = placed_.copies.front()->ne[0];
    const std::byte* from = bytes_.data() + row * format_.row_bytes(cols);
    if (format_.ggml_type == GGML_TYPE_F32) {
      std::memcpy(out, from, sizeof(float) * static_cast<size_t>(cols));
    } else {
      ggml_get_type_traits(static_cast<ggml_type>(format_.ggml_type))->to_float(from, out, cols);
    }
  }
  std::vector<float> operand() const override { return {}; }

 private:
  ggml_backend_t backend_;
  const Placed& placed_;
  const Format& format_;
  const std::vector<std::byte>& bytes_;
  ContextPtr context_;
  BufferPtr buffer_;
  ggml_cgraph* graph_;
  std::vector<ggml_tensor*> products_;
  size_t next_copy_ = 0;
};

class Ggml : public Peer {
 public:
  Ggml()
      : device_(ggml_backend_dev_by_type(GGML_BACKEND_DEVICE_TYPE_CPU)),
        registry_(ggml_backend_dev_backend_reg(device_)),
        backend_(ggml_backend_dev_init(device_, nullptr)) {}
  ~Ggml() override {
    placed_.clear();
    ggml_backend_free(backend_);
  }

  Json version() const override {
    Json features = Json::object();
    const auto get = function<ggml_backend_get_features_t>("ggml_backend_get_features");
    for (const ggml_backend_feature* f = get(registry_); f->name != nullptr; ++f) features[f->name] = f->value;
    return {{"ggml", ggml_version()}, {"commit", ggml_commit()}, {"features", std::move(features)}};
  }
  std::string timed() const override { return "activation quantizing and product, a graph at a time"; }

  Status prepare(const Options& options, const Format* format) override {
    function<ggml_backend_set_n_threads_t>("ggml_backend_set_n_threads")(backend_, options.threads);
    format_ = format;
    placed_.clear();
    refused_ = Json::array();
    quantize(options);
    place(options, ggml_backend_dev_buffer_type(device_), /*extra=*/false);
    const auto extras = function<ggml_backend_dev_get_extra_bufts_t>("ggml_backend_dev_get_extra_bufts");
    for (ggml_backend_buffer_type_t* type = extras(device_); type != nullptr && *type != nullptr; ++type) {
      place(options, *type, /*extra=*/true);
    }
    return {};
  }

  Expected<std::vector<std::unique_ptr<Arm>>> arms(const Options&, const Matrix& x) override {
    std::vector<std::unique_ptr<Arm>> all;
    for (const Placed& placed : placed_) {
      all.push_back(std::make_unique<GgmlArm>(backend_, placed, *format_, bytes_, x));
    }
    return all;
  }
  Json refused() const override { return refused_; }

 private:
  template <class Function>
  Function function(const char* name) const {
    return reinterpret_cast<Function>(ggml_backend_reg_get_proc_address(registry_, name));
  }

  /// The blocks of octalane's random weights, quantized by ggml.
  void quantize(const Options& options) {
    static ggml_type type;
    type = static_cast<ggml_type>(format_->ggml_type);
    ggml_quantize_init(type);
    Format by_ggml = *format_;
    by_ggml.from_float = [](const float* values, int64_t cols, std::byte* out) {
      ggml_quantize_chunk(type, values, out, 0, 1, cols, nullptr);
    };
    const double deviation = 1 / std::sqrt(static_cast<double>(options.cols));
    const cli::RandomBlocks random(by_ggml, deviation, options.seed, options.threads);
    const int64_t row_bytes = format_->row_bytes(options.cols);
    bytes_.resize(static_cast<size_t>(options.rows * row_bytes));
    for (int64_t row = 0; row < options.rows; ++row) {
      random.fill_row(0, row, options.cols, bytes_.data() + row * row_bytes);
    }
  }

  /// Packs copies of the weights into a buffer of this type, unless ggml cannot multiply from it.
  void place(const Options& options, ggml_backend_buffer_type_t type, bool extra) {
    const int64_t count = copies(options, static_cast<int64_t>(bytes_.size()));
    Placed placed{ggml_backend_buft_name(type), make_context(count + 1), {}, {}};
    for (int64_t i = 0; i < count; ++i) {
      placed.copies.push_back(ggml_new_tensor_2d(placed.context.get(), static_cast<ggml_type>(format_->ggml_type),
                                                 options.cols, options.rows));
    }
    placed.buffer.reset(ggml_backend_alloc_ctx_tensors_from_buft(placed.context.get(), type));
    const ContextPtr probe = make_context(4);
    ggml_tensor* input = ggml_new_tensor_2d(probe.get(), GGML_TYPE_F32, options.cols, 1);
    const ggml_tensor* product = ggml_mul_mat(probe.get(), placed.copies.front(), input);
    // An extra buffer type that has no packing for a tensor leaves `extra` empty, and must not be asked to multiply it.
    if (!ggml_backend_dev_supports_op(device_, product) || (extra && placed.copies.front()->extra == nullptr)) {
      refused_.push_back({{"kernel", "mul_mat " + placed.buffer_type},
                          {"why", fmt::format("ggml has no such packing of {} here", format_->name)}});
      return;
    }
    for (ggml_tensor* copy : placed.copies) ggml_backend_tensor_set(copy, bytes_.data(), 0, bytes_.size());
    placed_.push_back(std::move(placed));
  }

  ggml_backend_dev_t device_;
  ggml_backend_reg_t registry_;
  ggml_backend_t backend_;
  const Format* format_ = nullptr;
  std::vector<std::byte> bytes_;
  std::vector<Placed> placed_;
  Json refused_;
};

}  // namespace
}  // namespace octalane::peers

int main(int argc, char** argv) {
  ggml_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
  octalane::peers::Ggml peer;
  return octalane::peers::run_peer(argc, argv, "ggml", /*takes_formats=*/true, peer);
}
