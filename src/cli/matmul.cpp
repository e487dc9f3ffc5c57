// matmul -w FILE -t TENSOR -x X.npy -o Y.npy: one product with any tensor of a file.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "cli/command.h"
#include "cli/lanes.h"
#include "files/npy.h"
#include "files/quote.h"
#include "linear/reference.h"

namespace octalane::cli {
namespace {

struct Options {
  CommonOptions common;
  std::string file, tensor, x, y;
  bool reference = false;
};

/// What ran, and how far its output is from fp64.
struct Outcome {
  Json kernel, staged, kernel_error, total_error;
  int64_t rows_checked = 0;
};

Expected<const CheckpointTensor*> find_source(const Checkpoint& file, const std::string& wanted) {
  const CheckpointTensor* tensor = file.find(wanted);
  if (tensor == nullptr)
    return fail("{}: tensor {}: not among the {} tensors", file.path(), quote(wanted), file.tensors().size());
  const Expected<const Format*> format = tensor_format(file, *tensor);
  if (!format) return fail_with(format);
  return tensor;
}

Expected<Outcome> multiply(Context& context, const Linear& linear, const Matrix& x, Matrix& y) {
  Activations activations(context, x.view());
  if (const Status done = linear.multiply(context, activations, y.view()); !done) return fail_with(done);
  if (x.rows == 0) return Outcome{};
  const int64_t rows = rows_to_check(linear, x.rows, 400'000'000);
  const ProductErrors errors = measure_errors(context, linear, activations, std::as_const(y).view(), rows);
  const auto& [kernel, use] = *context.uses().begin();
  return Outcome{kernel, name(use.staged), errors.kernel, errors.total, rows};
}

/// fp64 sums over the decoded weights, rounded to fp32, a slice of weight rows at a time.
Expected<Outcome> multiply_reference(const Context& context, const Linear& linear, const Matrix& x, Matrix& y) {
  constexpr int64_t kSlice = 1024;
  double difference = 0, norm = 0;
  for (int64_t first = 0; first < linear.rows() && x.rows > 0; first += kSlice) {
    std::vector<int64_t> rows(static_cast<size_t>(std::min(kSlice, linear.rows() - first)));
    std::iota(rows.begin(), rows.end(), first);
    const auto count = static_cast<int64_t>(rows.size());
    std::vector<double> exact(static_cast<size_t>(x.rows * count));
    reference_product(linear, x.view(), rows, context.threads(), dense_view(exact.data(), x.rows, count));
    for (int64_t m = 0; m < x.rows; ++m) {
      for (int64_t n = 0; n < count; ++n) {
        const double wanted = exact[static_cast<size_t>(m * count + n)];
        const auto rounded = static_cast<float>(wanted);
        y.view()(m, first + n) = rounded;
        difference += (rounded - wanted) * (rounded - wanted);
        norm += wanted * wanted;
      }
    }
  }
  if (x.rows == 0) return Outcome{};
  return Outcome{"reference", "f64", nullptr, norm > 0 ? std::sqrt(difference / norm) : 0.0, linear.rows()};
}

Expected<int> matmul(const Options& options) {
  const Expected<Checkpoint> file = Checkpoint::open(options.file);
  if (!file) return fail_with(file);
  CommonOptions common = options.common;
  if (options.reference) {  // no lane is used, so none can be refused, and no kernel needs choosing
    common.lane = "auto";
    common.lanes = "";
    common.rates = "nominal";
  }
  const Expected<const CheckpointTensor*> source = find_source(*file, options.tensor);
  if (!source) return fail_with(source);
  const Expected<ObeyedLanes> lanes = find_lanes(common, *file);
  if (!lanes) return fail_with(lanes);
  Expected<Context> context = make_context(common, {(*source)->format}, Unmeasured::measure, lanes->rules);
  if (!context) return fail_with(context);
  const Expected<Linear> linear = Linear::bind(*context, (*source)->name, (*source)->matrix());
  if (!linear) return fail_with(linear);
  const Expected<Matrix> x = read_npy(options.x);
  if (!x) return fail_with(x);
  if (x->cols != linear->cols()) {
    return fail("{}: wanted {} columns as {} has, got {} x {}", options.x, linear->cols(), quote(options.tensor),
                x->rows, x->cols);
  }
  Matrix y{std::vector<float>(static_cast<size_t>(x->rows * linear->rows())), x->rows, linear->rows()};
  const Expected<Outcome> outcome =
      options.reference ? multiply_reference(*context, *linear, *x, y) : multiply(*context, *linear, *x, y);
  if (!outcome) return fail_with(outcome);
  if (const Status written = write_npy(options.y, std::as_const(y).view()); !written) return fail_with(written);

  const Json result{{"tensor", options.tensor},
                    {"format", linear->format().name},
                    {"shape", {y.rows, y.cols}},
                    {"cols", x->cols},
                    {"kernel", outcome->kernel},
                    {"staged", outcome->staged},
                    {"fallback", linear->fallback().empty() ? Json() : Json(linear->fallback())},
                    {"threads", context->threads()},
                    {"kernel_error", outcome->kernel_error},
                    {"total_error", outcome->total_error},
                    {"rows_checked", outcome->rows_checked}};
  if (options.common.json) {
    print_json(result);
  } else {
    if (!linear->fallback().empty()) fmt::print(stderr, "{}: {}\n", quote(options.tensor), linear->fallback());
    fmt::print("{}: [{} x {}] by {}, kernel error {}, total error {}\n", options.y, y.rows, y.cols,
               outcome->kernel.is_null() ? "no kernel (no rows)" : outcome->kernel.get<std::string>(),
               outcome->kernel_error.dump(), outcome->total_error.dump());
  }
  return 0;
}

}  // namespace

Command matmul_command(CLI::App& parent) {
  Flags flags(parent, "matmul", "Multiply activations by one tensor: Y = X W^T");
  auto options = std::make_shared<Options>();
  flags.text("-w,--weights", options->file, kModelHelp, Need::required);
  flags.text("-t,--tensor", options->tensor, "The tensor's name", Need::required);
  flags.text("-x", options->x, "Activations, float32 .npy [M, K]", Need::required);
  flags.text("-o,--output", options->y, "Where Y goes, float32 .npy [M, N]", Need::required);
  flags.toggle("--reference", options->reference,
               "fp64 sums over the decoded weights, rounded to float32, instead of a kernel");
  flags.common(options->common);
  flags.lane_plan(options->common);
  flags.rates(options->common);
  return {flags.app(), [options] { return matmul(*options); }};
}

}  // namespace octalane::cli
