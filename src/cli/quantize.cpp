// quantize IN OUT --format F: converts the weights of a model, tensor by tensor, and from one container to another.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <map>
#include <optional>

#include "checkpoint/rows.h"
#include "checkpoint/writer.h"
#include "cli/additive_tasks.h"
#include "cli/command.h"
#include "cli/conversion.h"
#include "cli/machine.h"
#include "cli/quantize_report.h"
#include "cli/terminal.h"
#include "core/parallel.h"
#include "files/quote.h"

namespace octalane::cli {
namespace {

struct Options {
  CommonOptions common;
  std::string in, out, format, container = "auto";
  std::vector<std::string> only, keep;
  AdditiveOptions additive;
};

/// What becomes of one tensor.
struct Task {
  const CheckpointTensor* tensor;
  const Format* to = nullptr;  ///< null = its bytes are copied as they are
  std::string why;             ///< when it does not get the format asked for
  RowOrder order{};
};

constexpr int64_t kSliceBytes = 16 << 20;  ///< of output held at once

/// Vectors (norms, biases) become f32, weights the wanted format or its fallback, the rest stays.
Expected<Task> make_task(const Options& options, Container container, const Checkpoint& file,
                         const CheckpointTensor& tensor) {
  Task task{&tensor, tensor.format, "", {}};
  const Expected<RowOrder> order = row_order(file, tensor, container);
  if (!order) return fail_with(order);
  task.order = *order;
  if (!options.only.empty() && !matches_any(tensor.name, options.only)) {
    task.why = "not among the tensors asked for";
  } else if (matches_any(tensor.name, options.keep)) {
    task.why = "kept as asked";
  } else if (tensor.shape.size() < 2) {
    task.why = "not a matrix: kept exact";
    if (tensor.format != nullptr) task.to = find_format("f32");
  } else {
    const Expected<const Format*> checked = tensor_format(file, tensor);
    if (!checked) return fail_with(checked);
    PickedFormat picked = format_for_matrix(*find_format(options.format), tensor.role, tensor.cols());
    task.why = std::move(picked.why);
    task.to = picked.format;
  }
  if (task.to != nullptr && !can_hold(container, *task.to)) {
    return fail("{}: tensor {}: {} has no place in {}, convert it too", file.path(), quote(tensor.name), task.to->name,
                container == Container::gguf ? "a GGUF file" : "a model folder");
  }
  return task;
}

/// True for matrices that have to be encoded as a whole.
bool is_encoded(const Task& task) {
  return task.to != nullptr && task.to->additive != nullptr && task.to != task.tensor->format;
}

/// Squared distance and squared norm of a row.
struct RowError {
  double difference = 0, norm = 0;
};

/// Values of one row of the output, before they are rounded to its format.
void read_values(const Task& task, int64_t row, std::vector<float>& out) {
  const StoredMatrix matrix = task.tensor->matrix();
  const bool vector = task.tensor->shape.size() < 2;
  matrix.decode_row(vector ? row : task.order.source(row), out.data());
  if (!vector || task.order.head_rows == 0) return;
  const std::vector<float> before = out;
  for (size_t c = 0; c < out.size(); ++c)
    out[c] = before[static_cast<size_t>(task.order.source(static_cast<int64_t>(c)))];
}

RowError convert_row(const Task& task, int64_t row, std::byte* out) {
  const int64_t cols = task.tensor->cols();
  if (task.to == task.tensor->format && task.tensor->shape.size() > 1) {
    task.tensor->matrix().read_row(task.order.source(row), out);
    return {};
  }
  std::vector<float> before(static_cast<size_t>(cols)), after(before);
  read_values(task, row, before);
  task.to->from_float(before.data(), cols, out);
  Planes planes(task.to->spec, 1, cols);
  task.to->to_planes(out, cols, planes.row(0));
  decode_row(task.to->spec, planes.row(0), cols, after.data());
  RowError error;
  for (size_t i = 0; i < before.size(); ++i) {
    const double distance = double{after[i]} - double{before[i]};
    error.difference += distance * distance;
    error.norm += double{before[i]} * double{before[i]};
  }
  return error;
}

/// Writes one tensor and returns its relative L2 error: |after - before| / |before|.
Expected<double> write_converted(const Task& task, int threads, CheckpointWriter& writer) {
  const int64_t rows = task.tensor->rows();
  const int64_t row_bytes = task.to->row_bytes(task.tensor->cols());
  const int64_t slice = std::max<int64_t>(1, kSliceBytes / std::max<int64_t>(1, row_bytes));
  std::vector<std::byte> bytes(static_cast<size_t>(std::min(slice, rows) * row_bytes));
  std::vector<RowError> errors(static_cast<size_t>(rows));
  for (int64_t first = 0; first < rows; first += slice) {
    const int64_t count = std::min(slice, rows - first);
    parallel_for(threads, count, 1, [&](int, int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        errors[static_cast<size_t>(first + i)] = convert_row(task, first + i, bytes.data() + i * row_bytes);
      }
    });
    if (interrupted()) return fail("interrupted");
    const Status written = writer.write({bytes.data(), static_cast<size_t>(count * row_bytes)});
    if (!written) return fail_with(written);
  }
  RowError sum;
  for (const RowError& error : errors) {
    sum.difference += error.difference;
    sum.norm += error.norm;
  }
  return sum.norm > 0 ? std::sqrt(sum.difference / sum.norm) : 0.0;
}

/// Additive codebooks as they are, their rows in the order of the output.
Expected<double> write_codebooks(const Task& task, CheckpointWriter& writer) {
  if (interrupted()) return fail("interrupted");
  const auto source = [&](int64_t row) { return task.order.source(row); };
  const Status written = writer.write(additive_matrix(task.tensor->matrix(), source));
  if (!written) return fail_with(written);
  return 0.0;
}

Expected<double> write_copied(const Task& task, CheckpointWriter& writer) {
  std::span<const std::byte> rest(task.tensor->parts[0], task.tensor->bytes);
  while (!rest.empty()) {
    const std::span<const std::byte> piece = rest.first(std::min<size_t>(rest.size(), kSliceBytes));
    if (interrupted()) return fail("interrupted");
    if (const Status written = writer.write(piece); !written) return fail_with(written);
    rest = rest.subspan(piece.size());
  }
  return 0.0;
}

/// Encodes one matrix; the figures of what was made of it.
Expected<Json> write_encoded(const Task& task, AdditiveTasks& tasks, const std::string& progress_text,
                             Progress& progress, CheckpointWriter& writer) {
  const int64_t cols = task.tensor->cols();
  const auto read_row = [&](int64_t row, float* out) { task.tensor->matrix().decode_row(task.order.source(row), out); };
  const Expected<KeptPart> part =
      tasks.encode({task.tensor->name, task.tensor->rows(), cols, read_row},
                   [&](double share) { progress.show(fmt::format("{}: {:.0f} %", progress_text, 100 * share)); });
  if (!part) return fail_with(part);
  if (const Status written = writer.write(part->matrix); !written) return fail_with(written);
  const auto weighted = [&](double value) { return tasks.calibrated() ? Json(value) : Json(); };
  return Json{{"rel_error", part->rel_error},
              {"weighted_error", weighted(part->weighted_error)},
              {"rounding",
               {{"format", AdditiveTasks::rounding_format(cols).name},
                {"rel_error", part->rtn_error},
                {"weighted_error", weighted(part->rtn_weighted_error)}}}};
}

Json task_json(const Task& task, const Json& figures) {
  const std::string& from = task.tensor->type;
  Json row{{"name", task.tensor->name},
           {"from", from},
           {"to", task.to != nullptr ? std::string(task.to->name) : from},
           {"rows_reordered", task.order.head_rows > 0},
           {"why", task.why.empty() ? Json() : Json(task.why)}};
  row.update(figures);
  return row;
}

Expected<Json> write_task(const Task& task, std::optional<AdditiveTasks>& encoder, int threads,
                          const std::string& progress_text, Progress& progress, CheckpointWriter& writer) {
  if (is_encoded(task)) return write_encoded(task, *encoder, progress_text, progress, writer);
  const Expected<double> error = task.to == nullptr             ? write_copied(task, writer)
                                 : task.to->additive != nullptr ? write_codebooks(task, writer)
                                                                : write_converted(task, threads, writer);
  if (!error) return fail_with(error);
  return Json{{"rel_error", *error}};
}

/// The keys of the input, with what is said of the weights' format.
Expected<GgufFile> output_metadata(const Options& options, const Checkpoint& file) {
  GgufWriter keys = GgufWriter::in_memory(options.out);
  for (const auto& [key, value] : file.metadata().metadata()) keys.copy(key, value);
  const int64_t file_type = gguf_file_type(*find_format(options.format));
  if (file_type >= 0) keys.set("general.file_type", GgufType::u32, static_cast<uint64_t>(file_type));
  keys.set("general.quantization_version", GgufType::u32, kQuantizationVersion);
  return keys.take();
}

Status declare_tensors(const Checkpoint& file, const std::vector<Task>& tasks, CheckpointWriter& writer) {
  for (const Task& task : tasks) {
    const CheckpointTensor& tensor = *task.tensor;
    if (tensor.role.empty()) {
      return fail("{}: tensor {}: GGUF has no name for it, so it cannot be written", file.path(), quote(tensor.name));
    }
    const GgufTensor* raw = task.to == nullptr ? file.metadata().find_tensor(tensor.name) : nullptr;
    if (task.to == nullptr && raw == nullptr) {
      return fail("{}: tensor {}: wanted a type that octalane computes with, got {}", file.path(), quote(tensor.name),
                  tensor.type);
    }
    const Status added = raw != nullptr ? writer.add_tensor(tensor.role, raw->ggml_type, tensor.shape)
                                        : writer.add_tensor(tensor.role, *task.to, tensor.shape);
    if (!added) return added;
  }
  return {};
}

/// Every pattern means at least one tensor: a misspelt one would leave a model other than the one asked for.
Status check_patterns(const Options& options, const Checkpoint& file) {
  for (const auto& [flag, patterns] : {std::pair{"--tensor", &options.only}, {"--keep", &options.keep}}) {
    for (const std::string& pattern : *patterns) {
      const bool used = std::ranges::any_of(
          file.tensors(), [&](const CheckpointTensor& tensor) { return matches_any(tensor.name, {pattern}); });
      if (!used) return fail("{}: {}: matches no tensor of {}", flag, quote(pattern), file.path());
    }
  }
  return {};
}

/// What encodes this run's matrices; none when there are none.
Expected<std::optional<AdditiveTasks>> make_encoder(const Options& options, const Checkpoint& file,
                                                    const std::vector<Task>& tasks, int threads) {
  std::vector<std::string> names;
  for (const Task& task : tasks) {
    if (is_encoded(task)) names.push_back(task.tensor->name);
  }
  if (names.empty()) return std::optional<AdditiveTasks>();
  std::string out = options.out;
  while (out.size() > 1 && out.ends_with('/')) out.pop_back();
  Expected<AdditiveTasks> made = AdditiveTasks::create(options.common, options.additive, file,
                                                       *find_format(options.format), names, out + ".parts", threads);
  if (!made) return fail_with(made);
  return std::optional<AdditiveTasks>(std::move(*made));
}

Expected<Json> convert(const Options& options, Container container, const Checkpoint& file, int threads) {
  if (const Format& format = *find_format(options.format); !can_hold(container, format)) {
    return fail("--format: {} has no place in {}", format.name,
                container == Container::gguf ? "a GGUF file" : "a model folder");
  }
  if (const Status patterns = check_patterns(options, file); !patterns) return fail_with(patterns);
  std::vector<Task> tasks;
  for (const CheckpointTensor& tensor : file.tensors()) {
    Expected<Task> task = make_task(options, container, file, tensor);
    if (!task) return fail_with(task);
    tasks.push_back(std::move(*task));
  }
  const InterruptScope scope;
  Expected<std::optional<AdditiveTasks>> encoder = make_encoder(options, file, tasks, threads);
  if (!encoder) return fail_with(encoder);
  Expected<GgufFile> metadata = output_metadata(options, file);
  if (!metadata) return fail_with(metadata);
  Expected<CheckpointWriter> writer = CheckpointWriter::create(options.out, container, std::move(*metadata));
  if (!writer) return fail_with(writer);
  if (const Status declared = declare_tensors(file, tasks, *writer); !declared) return fail_with(declared);

  Progress progress;
  Json tensors = Json::array();
  for (const Task& task : tasks) {
    const std::string text = fmt::format("{} of {}: {}", tensors.size() + 1, tasks.size(), quote(task.tensor->name));
    progress.show(text);
    const Expected<Json> figures = write_task(task, *encoder, threads, text, progress, *writer);
    if (!figures) return fail_with(figures);
    file.release(*task.tensor);
    tensors.push_back(task_json(task, *figures));
  }
  if (const Status finished = writer->finish(); !finished) return fail_with(finished);
  Json result{{"tensors", std::move(tensors)}};
  if (encoder->has_value()) {
    (*encoder)->parts().remove();
    result["calibration_tokens"] = (*encoder)->calibration_tokens();
    result["resumed"] = (*encoder)->resumed();
  }
  return result;
}

/// Formats that can be made of values, block by block or as a whole.
std::vector<std::string> quantize_formats() {
  std::vector<std::string> names = encodable_formats();
  for (const Format* format : formats()) {
    if (format->additive != nullptr && !format->additive->by_rows) names.emplace_back(format->name);
  }
  return names;
}

Expected<int> quantize(const Options& options) {
  const double start = now_seconds();
  const Expected<Checkpoint> file = Checkpoint::open(options.in);
  if (!file) return fail_with(file);
  std::error_code ignored;
  if (std::filesystem::equivalent(options.in, options.out, ignored)) {
    return fail("{}: wanted another file to write to, got the one that is read", options.out);
  }
  if (!file->model_status()) return fail_with(file->model_status());
  const Expected<Context> context = make_context(options.common);
  if (!context) return fail_with(context);
  const Container container = output_container(options.out, options.container, *find_format(options.format));
  if (!options.additive.calibration.text.empty() && find_format(options.format)->additive == nullptr) {
    return fail("--calibrate: wanted a format of additive codebooks (--format), got {}", options.format);
  }
  const Expected<Json> converted = convert(options, container, *file, context->threads());
  if (!converted) return fail_with(converted);
  Json result{{"input", options.in},
              {"output", options.out},
              {"format", options.format},
              {"not_kept", container == Container::folder ? Json(keys_folders_lack(file->metadata())) : Json::array()},
              {"bytes_in", file->file_bytes()},
              {"container", container == Container::gguf ? "gguf" : "safetensors"},
              {"bytes_out", bytes_on_disk(options.out)},
              {"seconds", now_seconds() - start}};
  result.update(*converted);
  if (options.common.json) {
    print_json(result);
  } else {
    print_quantized(result);
  }
  return 0;
}

}  // namespace

Command quantize_command(CLI::App& parent) {
  Flags flags(parent, "quantize", "Convert the weights of a model, and GGUF files to model folders and back");
  flags.footer(
      "Matrices get the format asked for, embedding and output included; where a row is not a multiple of its block, "
      "the "
      "nearest format of smaller blocks with at least its bits. Vectors (norms, biases) become f32, which is exact. "
      "Between a GGUF file and a folder the tokenizer (byte-level BPE), the configuration and the order of q and k "
      "rows "
      "are translated. Additive codebooks are searched for, matrix by matrix; finished ones lie in OUT.parts until all "
      "are, so that an interrupted run goes on when it is started again.");
  auto options = std::make_shared<Options>();
  flags.text("IN", options->in, kModelHelp, Need::required);
  flags.text("OUT", options->out,
             "What to write: a GGUF file, or a new folder for formats of MLX and additive codebooks", Need::required);
  flags.choice("--format", options->format, quantize_formats(), "What the weights become", Need::required);
  flags.patterns("--tensor", options->only, "Convert only tensors of this name, copy the others");
  flags.patterns("--keep", options->keep, "Copy tensors of this name as they are, such as token_embd.weight");
  flags.choice("--container", options->container, {"auto", "gguf", "folder"},
               "Where the weights go; auto: a folder for formats that GGUF lacks, else a GGUF file");
  flags.seed(options->additive.seed, "Seed of the search for codebooks");
  flags.text(
      "--calibrate", options->additive.calibration.text,
      "A text: codebooks then lower the error of layers' outputs over its tokens; needs up to 2 GiB for moments");
  flags.number("--calibrate-tokens", options->additive.calibration.tokens, 1, int64_t{1} << 24,
               "Use at most this many tokens of it, in windows of 512");
  flags.common(options->common);
  return {flags.app(), [options] { return quantize(*options); }};
}

}  // namespace octalane::cli
