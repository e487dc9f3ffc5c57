// Dense products of oneDNN with weights that are already bfloat16 or int8 and packed as oneDNN likes them: what a
// library reaches that has nothing to decode. Only the product is timed; the operands come from the same random data.
#include <sched.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <oneapi/dnnl/dnnl.hpp>

#include "core/half.h"
#include "core/parallel.h"
#include "driver.h"

namespace octalane::peers {
namespace {

using dnnl::memory;

enum class Operands { bf16, s8, u8 };  ///< of the activations; int8 weights are signed

struct Way {
  const char* kernel;
  const char* format;
  Operands activations;
  memory::data_type x, w, y;
};
constexpr Way kWays[] = {
    {"bf16*bf16->f32", "bf16", Operands::bf16, memory::data_type::bf16, memory::data_type::bf16,
     memory::data_type::f32},
    {"s8*s8->s32", "s8", Operands::s8, memory::data_type::s8, memory::data_type::s8, memory::data_type::s32},
    {"u8*s8->s32", "s8", Operands::u8, memory::data_type::u8, memory::data_type::s8, memory::data_type::s32},
};

/// A matrix in the bytes that oneDNN takes, and what they stand for: value = scale of the row * (code - zero).
struct Staged {
  std::vector<std::byte> bytes;
  std::vector<float> scales;
  int zero = 0;
  Operands type;
  int64_t cols = 0;

  float value(int64_t row, int64_t col) const {
    const auto at = static_cast<size_t>(row * cols + col);
    if (type == Operands::bf16) {
      uint16_t bits;
      std::memcpy(&bits, bytes.data() + 2 * at, sizeof bits);
      return bf16_to_f32(bits);
    }
    const int code = type == Operands::s8 ? static_cast<int8_t>(bytes[at]) : static_cast<uint8_t>(bytes[at]);
    return scales[static_cast<size_t>(row)] * static_cast<float>(code - zero);
  }
};

/// One row to bfloat16, or to 8 bits by the largest magnitude of the row.
void stage_row(const float* values, int64_t row, Staged& to) {
  const auto cols = static_cast<size_t>(to.cols), first = static_cast<size_t>(row) * cols;
  if (to.type == Operands::bf16) {
    for (size_t i = 0; i < cols; ++i) {
      const uint16_t bits = f32_to_bf16(values[i]);
      std::memcpy(to.bytes.data() + 2 * (first + i), &bits, sizeof bits);
    }
    return;
  }
  float largest = 0;
  for (size_t i = 0; i < cols; ++i) largest = std::max(largest, std::fabs(values[i]));
  to.scales[static_cast<size_t>(row)] = largest / 127;
  for (size_t i = 0; i < cols; ++i) {
    const long code = std::lround(127 * values[i] / largest) + to.zero;
    to.bytes[first + i] = static_cast<std::byte>(code & 255);
  }
}

Staged make_staged(Operands type, int64_t rows, int64_t cols) {
  const int64_t bytes = rows * cols * (type == Operands::bf16 ? 2 : 1);
  return {std::vector<std::byte>(static_cast<size_t>(bytes)), std::vector<float>(static_cast<size_t>(rows)),
          type == Operands::u8 ? 128 : 0, type, cols};
}

class OneDnnArm : public Arm {
 public:
  OneDnnArm(const dnnl::engine& engine, const Options& options, const Way& way, const Staged& weights, const Matrix& x)
      : way_(way),
        options_(options),
        weights_(weights),
        x_(make_staged(way.activations, x.rows, x.cols)),
        stream_(engine) {
    for (int64_t m = 0; m < x.rows; ++m) stage_row(x.view().row(m), m, x_);
    using tag = memory::format_tag;
    const memory::desc x_desc({x.rows, x.cols}, way.x, tag::ab), y_desc({x.rows, options.rows}, way.y, tag::ab);
    const memory::dims w_dims{x.cols, options.rows};
    const dnnl::matmul::primitive_desc chosen(engine, x_desc, memory::desc(w_dims, way.w, tag::any), y_desc);
    implementation_ = chosen.impl_info_str();
    matmul_ = dnnl::matmul(chosen);
    x_memory_ = memory(x_desc, engine);
    std::memcpy(x_memory_.get_data_handle(), x_.bytes.data(), x_.bytes.size());
    y_memory_ = memory(y_desc, engine);
    // W[N, K] as stored is the transpose of the K x N that oneDNN multiplies by.
    memory plain(memory::desc(w_dims, way.w, tag::ba), engine);
    std::memcpy(plain.get_data_handle(), weights.bytes.data(), weights.bytes.size());
    const int64_t count = copies(options, weight_bytes());
    for (int64_t i = 0; i < count; ++i) {
      copies_.emplace_back(chosen.weights_desc(), engine);
      dnnl::reorder(plain, copies_.back()).execute(stream_, plain, copies_.back());
    }
    stream_.wait();
  }

  Json cell() const override {
    return {{"kernel", way_.kernel}, {"implementation", implementation_}, {"staged", nullptr}, {"format", way_.format}};
  }
  int64_t weight_bytes() const override { return static_cast<int64_t>(weights_.bytes.size()); }
  int64_t products_per_call() const override { return 1; }

  Status multiply() override {
    const memory& w = copies_[next_copy_++ % copies_.size()];
    matmul_.execute(stream_, {{DNNL_ARG_SRC, x_memory_}, {DNNL_ARG_WEIGHTS, w}, {DNNL_ARG_DST, y_memory_}});
    stream_.wait();
    return {};
  }
  void output(MatrixView<float> y) const override {
    const void* from = y_memory_.get_data_handle();
    if (way_.y == memory::data_type::f32) {
      std::memcpy(y.data, from, sizeof(float) * static_cast<size_t>(y.rows * y.cols));
      return;
    }
    const auto* sums = static_cast<const int32_t*>(from);
    for (int64_t n = 0; n < y.cols; ++n) {
      int64_t codes = 0;  // what the zero point of the activations has added
      for (int64_t k = 0; k < options_.cols && x_.zero != 0; ++k) {
        codes += static_cast<int8_t>(weights_.bytes[static_cast<size_t>(n * options_.cols + k)]);
      }
      for (int64_t m = 0; m < y.rows; ++m) {
        const double scale = static_cast<double>(weights_.scales[static_cast<size_t>(n)]) *
                             static_cast<double>(x_.scales[static_cast<size_t>(m)]);
        y(m, n) = static_cast<float>(scale * static_cast<double>(sums[m * y.cols + n] - x_.zero * codes));
      }
    }
  }
  void decode_row(int64_t row, float* out) const override {
    for (int64_t k = 0; k < options_.cols; ++k) out[k] = weights_.value(row, k);
  }
  std::vector<float> operand() const override {
    std::vector<float> values;
    const auto rows = static_cast<int64_t>(x_.scales.size());
    for (int64_t m = 0; m < rows; ++m) {
      for (int64_t k = 0; k < options_.cols; ++k) values.push_back(x_.value(m, k));
    }
    return values;
  }

 private:
  const Way& way_;
  const Options& options_;
  const Staged& weights_;
  Staged x_;
  dnnl::stream stream_;
  std::string implementation_;
  dnnl::matmul matmul_;
  memory x_memory_, y_memory_;
  std::vector<memory> copies_;
  size_t next_copy_ = 0;
};

class OneDnn : public Peer {
 public:
  Json version() const override {
    const dnnl_version_t* v = dnnl_version();
    return {{"onednn", fmt::format("{}.{}.{}", v->major, v->minor, v->patch)}, {"commit", v->hash}};
  }
  std::string timed() const override { return "product alone, operands staged beforehand"; }

  /// oneDNN's threads follow the affinity mask, which therefore must be set before its engine is made.
  Status prepare(const Options& options, const Format*) override {
    if (const Status done = limit_threads(options.threads); !done) return done;
    engine_ = dnnl::engine(dnnl::engine::kind::cpu, 0);
    const cli::RandomBlocks random(*find_format("f32"), 1 / std::sqrt(static_cast<double>(options.cols)), options.seed,
                                   options.threads);
    weights_[0] = make_staged(Operands::bf16, options.rows, options.cols);
    weights_[1] = make_staged(Operands::s8, options.rows, options.cols);
    parallel_for(options.threads, options.rows, 1, [&](int, int64_t begin, int64_t end) {
      std::vector<float> values(static_cast<size_t>(options.cols));
      for (int64_t row = begin; row < end; ++row) {
        random.fill_row(0, row, options.cols, reinterpret_cast<std::byte*>(values.data()));
        for (Staged& weights : weights_) stage_row(values.data(), row, weights);
      }
    });
    return {};
  }

  Expected<std::vector<std::unique_ptr<Arm>>> arms(const Options& options, const Matrix& x) override {
    std::vector<std::unique_ptr<Arm>> all;
    for (const Way& way : kWays) {
      try {
        const Staged& weights = weights_[way.activations == Operands::bf16 ? 0 : 1];
        all.push_back(std::make_unique<OneDnnArm>(engine_, options, way, weights, x));
      } catch (const dnnl::error& error) {
        return fail("{}: {}", way.kernel, error.what());
      }
    }
    return all;
  }
  Json refused() const override { return Json::array(); }

 private:
  static Status limit_threads(int threads) {
    cpu_set_t allowed, kept;
    CPU_ZERO(&kept);
    if (::sched_getaffinity(0, sizeof allowed, &allowed) != 0) return fail("sched_getaffinity failed");
    for (int cpu = 0; cpu < CPU_SETSIZE && CPU_COUNT(&kept) < threads; ++cpu) {
      if (CPU_ISSET(cpu, &allowed)) CPU_SET(cpu, &kept);
    }
    if (::sched_setaffinity(0, sizeof kept, &kept) != 0) return fail("sched_setaffinity failed");
    return {};
  }

  dnnl::engine engine_;
  Staged weights_[2];
};

}  // namespace
}  // namespace octalane::peers

int main(int argc, char** argv) {
#ifdef OCTALANE_OPENCL_DRIVER
  ::setenv("OCL_ICD_FILENAMES", OCTALANE_OPENCL_DRIVER, 0);  // a CPU engine of a SYCL build lives on an OpenCL device
#endif
  octalane::peers::OneDnn peer;
  try {
    return octalane::peers::run_peer(argc, argv, "oneDNN", /*takes_formats=*/false, peer);
  } catch (const dnnl::error& error) {
    fmt::print(stderr, "{}: error: {}\n", argv[0], error.what());
    return 1;
  }
}
