#include "cli/additive_tasks.h"

#include <fmt/format.h>

#include <filesystem>

#include "cli/terminal.h"
#include "core/fnv1a.h"
#include "core/parallel.h"
#include "files/quote.h"

namespace octalane::cli {
namespace {

/// A change of what the encoder makes of the same weights changes this.
constexpr std::string_view kEncoder = "additive encoder 2";

std::vector<float> rounded(const Format& format, const std::vector<float>& weights, int64_t cols, int threads) {
  std::vector<float> out(weights.size());
  const int64_t rows = static_cast<int64_t>(weights.size()) / cols;
  parallel_for(threads, rows, 1, [&](int, int64_t begin, int64_t end) {
    std::vector<std::byte> bytes(static_cast<size_t>(format.row_bytes(cols)));
    const Planes planes(format.spec, 1, cols);
    for (int64_t n = begin; n < end; ++n) {
      format.from_float(weights.data() + n * cols, cols, bytes.data());
      format.to_planes(bytes.data(), cols, planes.row(0));
      decode_row(format.spec, planes.row(0), cols, out.data() + n * cols);
    }
  });
  return out;
}

}  // namespace

const Format& AdditiveTasks::rounding_format(int64_t cols) {
  for (const char* name : {"mlx-affine-2-g128", "mlx-affine-2-g64"}) {
    if (const Format* format = find_format(name); cols % format->block == 0) return *format;
  }
  return *find_format("mlx-affine-2-g32");
}

Expected<AdditiveTasks> AdditiveTasks::create(const CommonOptions& common, const AdditiveOptions& options,
                                              const Checkpoint& file, const Format& format,
                                              std::vector<std::string> names, const std::string& folder, int threads) {
  AdditiveTasks out(file, format, folder);
  out.names_ = std::move(names);
  out.seed_ = options.seed;
  out.threads_ = threads;
  if (options.calibration.text.empty()) return out;
  Expected<Calibration> calibration = Calibration::read(common, options.calibration, file);
  if (!calibration) return fail_with(calibration);
  out.calibration_ = std::move(*calibration);
  return out;
}

std::string AdditiveTasks::key(const AdditiveTask& task, const std::vector<float>& weights) const {
  Fnv1a hash;
  hash.add(fmt::format("{} {} {} {} {} {} {}", kEncoder, format_.name, seed_, calibration_ ? calibration_->key() : "",
                       task.name, task.rows, task.cols));
  hash.add(std::as_bytes(std::span(weights)));
  return hash.hex();
}

tl::unexpected<Error> AdditiveTasks::interrupted_error() const {
  if (done_ == 0) return fail("interrupted");
  return fail("interrupted: {} of {} matrices are kept in {}, and the same command goes on from there", done_,
              names_.size(), parts_.folder());
}

Expected<KeptPart> AdditiveTasks::encode(const AdditiveTask& task, const std::function<void(double)>& progress) {
  std::vector<float> weights(static_cast<size_t>(task.rows * task.cols));
  parallel_for(threads_, task.rows, 16, [&](int, int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) task.read_row(n, weights.data() + n * task.cols);
  });
  const std::string id = key(task, weights);
  if (std::optional<KeptPart> kept = parts_.find(id, format_.additive->shape, task.rows, task.cols)) {
    ++done_;
    ++resumed_;
    return std::move(*kept);
  }
  if (interrupted()) return interrupted_error();
  Expected<KeptPart> part = encode_new(task, weights, progress);
  if (interrupted()) return interrupted_error();
  if (!part) return fail("{}: tensor {}: {}", file_.path(), quote(task.name), part.error().message);
  if (const Status kept = parts_.keep(id, *part); !kept) return fail_with(kept);
  ++done_;
  return part;
}

Expected<KeptPart> AdditiveTasks::encode_new(const AdditiveTask& task, const std::vector<float>& weights,
                                             const std::function<void(double)>& progress) {
  const SecondMoments* moments = nullptr;
  if (calibration_) {
    const std::vector<std::string_view> left(names_.begin() + done_, names_.end());
    const Expected<const SecondMoments*> found = calibration_->moments(file_, left);
    if (!found) return fail_with(found);
    moments = *found;
  }
  const float* h = moments != nullptr ? moments->values() : nullptr;
  Expected<AdditiveMatrix> matrix =
      encode_additive(weights.data(), task.rows, task.cols, format_.additive->shape,
                      {.seed = seed_, .threads = threads_, .second_moments = h, .progress = progress, .cancelled = [] {
                         return interrupted();
                       }});
  if (!matrix) return fail_with(matrix);
  std::vector<float> after(weights.size());
  parallel_for(threads_, task.rows, 16, [&](int, int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) decode_additive_row(*matrix, n, after.data() + n * task.cols);
  });
  const auto error = [&](const std::vector<float>& values) {
    return matrix_error(weights.data(), values.data(), task.rows, task.cols, h, threads_);
  };
  const MatrixError own = error(after), rtn = error(rounded(rounding_format(task.cols), weights, task.cols, threads_));
  return KeptPart{std::move(*matrix), own.relative, own.weighted, rtn.relative, rtn.weighted};
}

}  // namespace octalane::cli
