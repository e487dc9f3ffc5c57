#include <exception>
#include <span>
#include <string>

#include "checkpoint/checkpoint.h"
#include "formats/format.h"
#include "gate/lane_plan.h"
#include "kernels/registry.h"
#include "linear/linear.h"
#include "octalane/octalane.h"
#include "probe/rates_file.h"

struct octalane_context {
  octalane::Context context;
};
struct octalane_file {
  octalane::Checkpoint file;
};
struct octalane_weights {
  octalane::Linear linear;
};

namespace octalane {
namespace {

thread_local std::string last_error;
thread_local std::string last_kernel;

octalane_status failed(std::string message) {
  last_error = std::move(message);
  return OCTALANE_ERROR;
}

/// Runs `body`, which returns an Expected whose value becomes *out; nothing thrown (out of memory) gets past it.
template <class Handle, class Body>
octalane_status create(Handle** out, const char* function, Body body) {
  if (out == nullptr) return failed(std::string(function) + ": out is NULL");
  *out = nullptr;
  try {
    auto made = body();
    if (!made) return failed(made.error().message);
    *out = new Handle{std::move(*made)};
    return OCTALANE_OK;
  } catch (const std::exception& thrown) {
    return failed(std::string(function) + ": " + thrown.what());
  }
}

Expected<Context> create_context(const octalane_options& options) {
  ContextOptions wanted;
  wanted.threads = options.threads;
  if (options.isa != nullptr) wanted.isa = options.isa;
  if (options.lane != nullptr && std::string_view(options.lane) != "auto") {
    wanted.lane = staged_type_from_name(options.lane);
    if (!wanted.lane) return fail("lane {}: unknown", options.lane);
  }
  if (options.rates != nullptr) {
    Expected<SavedRates> saved = read_rates(options.rates);
    if (!saved) return fail_with(saved);
    wanted.rates = std::make_shared<const Rates>(std::move(saved->rates));
  }
  if (options.lanes != nullptr) {
    Expected<std::vector<LaneRule>> rules = read_lane_plan(options.lanes);
    if (!rules) return fail_with(rules);
    wanted.rules = std::make_shared<const LaneRules>(LaneRules{std::move(*rules), {}});
  }
  return Context::create(wanted);
}

Expected<Linear> bind_tensor(Context& context, const Checkpoint& file, const char* name) {
  const CheckpointTensor* tensor = file.find(name);
  if (tensor == nullptr) return fail("{}: no tensor {}", file.path(), name);
  if (tensor->format == nullptr) return fail("{}: type {} is not supported", name, tensor->type);
  return Linear::bind(context, name, tensor->matrix());
}

/// The format of this name, which rows x cols weights can have.
Expected<const Format*> format_for(const char* name, int64_t rows, int64_t cols) {
  const Format* format = find_format(name);
  if (format == nullptr) return fail("format {}: unknown", name);
  if (rows < 1 || cols < 1 || cols % format->block != 0) {
    return fail("{} weights: wanted at least one row of a multiple of {} columns, got {} x {}", name, format->block,
                rows, cols);
  }
  return format;
}

Expected<Linear> bind_parts(Context& context, const char* name, std::span<const void* const> parts, const size_t* bytes,
                            int64_t rows, int64_t cols) {
  const Expected<const Format*> found = format_for(name, rows, cols);
  if (!found) return fail_with(found);
  StoredMatrix matrix{*found, rows, cols, {}};
  const std::vector<StoredPart> wanted = stored_parts(**found, cols);
  if (parts.size() != wanted.size()) {
    return fail("{} weights: wanted {} parts, got {}", name, wanted.size(), parts.size());
  }
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto needed = static_cast<size_t>(wanted[i].bytes);
    const bool enough = wanted[i].per_matrix ? bytes[i] >= needed : bytes[i] / needed >= static_cast<size_t>(rows);
    if (parts[i] == nullptr || !enough) {
      return fail("{} weights: {}: {} x {} need {} bytes{}, got {}", name, wanted[i].suffix, rows, cols, needed,
                  wanted[i].per_matrix ? "" : " a row", parts[i] == nullptr ? size_t{0} : bytes[i]);
    }
    matrix.parts[i] = static_cast<const std::byte*>(parts[i]);
  }
  return Linear::bind(context, name, matrix);
}

Expected<Linear> bind_blocks(Context& context, const char* name, const void* data, size_t bytes, int64_t rows,
                             int64_t cols) {
  const Expected<const Format*> found = format_for(name, rows, cols);
  if (!found) return fail_with(found);
  const Format* format = *found;
  if (format->additive != nullptr) return fail("{} weights: wanted their parts, got one piece", name);
  const auto blocks = static_cast<size_t>(cols / format->block), block_bytes = static_cast<size_t>(format->block_bytes);
  if (bytes / block_bytes / blocks < static_cast<size_t>(rows)) {
    return fail("{} weights: {} x {} need {} bytes a row, got {} bytes", name, rows, cols, blocks * block_bytes, bytes);
  }
  return Linear::bind(context, name, *format, static_cast<const std::byte*>(data), rows, cols);
}

}  // namespace
}  // namespace octalane

using namespace octalane;

const char* octalane_version(void) { return OCTALANE_VERSION; }

const char* octalane_last_error(void) { return last_error.c_str(); }

octalane_status octalane_context_create(const octalane_options* options, octalane_context** out) {
  return create(out, __func__, [&] { return create_context(options != nullptr ? *options : octalane_options{}); });
}

void octalane_context_free(octalane_context* context) { delete context; }

octalane_status octalane_file_open(const char* path, octalane_file** out) {
  if (path == nullptr) return failed("octalane_file_open: path is NULL");
  return create(out, __func__, [&] { return Checkpoint::open(path); });
}

void octalane_file_free(octalane_file* file) { delete file; }

octalane_status octalane_weights_bind_tensor(octalane_context* context, const octalane_file* file, const char* tensor,
                                             octalane_weights** out) {
  if (context == nullptr || file == nullptr || tensor == nullptr) {
    return failed("octalane_weights_bind_tensor: context, file or tensor is NULL");
  }
  return create(out, __func__, [&] { return bind_tensor(context->context, file->file, tensor); });
}

octalane_status octalane_weights_bind(octalane_context* context, const char* format, const void* data, size_t bytes,
                                      int64_t rows, int64_t cols, octalane_weights** out) {
  if (context == nullptr || format == nullptr || data == nullptr) {
    return failed("octalane_weights_bind: context, format or data is NULL");
  }
  return create(out, __func__, [&] { return bind_blocks(context->context, format, data, bytes, rows, cols); });
}

octalane_status octalane_weights_bind_parts(octalane_context* context, const char* format, const void* const* parts,
                                            const size_t* bytes, size_t count, int64_t rows, int64_t cols,
                                            octalane_weights** out) {
  if (context == nullptr || format == nullptr || parts == nullptr || bytes == nullptr) {
    return failed("octalane_weights_bind_parts: context, format, parts or bytes is NULL");
  }
  return create(out, __func__, [&] { return bind_parts(context->context, format, {parts, count}, bytes, rows, cols); });
}

void octalane_weights_free(octalane_weights* weights) { delete weights; }

int64_t octalane_weights_rows(const octalane_weights* weights) { return weights->linear.rows(); }

int64_t octalane_weights_cols(const octalane_weights* weights) { return weights->linear.cols(); }

octalane_status octalane_weights_kernel(const octalane_context* context, const octalane_weights* weights,
                                        int64_t tokens, const char** kernel) {
  if (context == nullptr || weights == nullptr || kernel == nullptr) {
    return failed("octalane_weights_kernel: context, weights or kernel is NULL");
  }
  try {
    const Expected<Plan> plan = weights->linear.plan(context->context, tokens);
    if (!plan) return failed(plan.error().message);
    last_kernel = name(*plan->choice.kernel);
    *kernel = last_kernel.c_str();
    return OCTALANE_OK;
  } catch (const std::exception& thrown) {
    return failed(std::string("octalane_weights_kernel: ") + thrown.what());
  }
}

octalane_status octalane_multiply(octalane_context* context, const octalane_weights* weights, const float* x,
                                  int64_t tokens, int64_t x_stride, float* y, int64_t y_stride) {
  if (context == nullptr || weights == nullptr) return failed("octalane_multiply: context or weights is NULL");
  if (tokens == 0) return OCTALANE_OK;
  const Linear& linear = weights->linear;
  if (x == nullptr || y == nullptr || tokens < 0) return failed("octalane_multiply: x or y is NULL, or tokens < 0");
  if (y_stride < linear.rows()) {
    return failed(fmt::format("octalane_multiply: wanted an output stride of at least {} columns, got {}",
                              linear.rows(), y_stride));
  }
  try {
    const Status done = linear.multiply(context->context, MatrixView<const float>{x, tokens, linear.cols(), x_stride},
                                        MatrixView<float>{y, tokens, linear.rows(), y_stride});
    return done ? OCTALANE_OK : failed(done.error().message);
  } catch (const std::exception& thrown) {
    return failed(std::string("octalane_multiply: ") + thrown.what());
  }
}
