// quantize IN OUT --format F: converts the weights of a model, tensor by tensor, and from one container to another.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "checkpoint/rows.h"
#include "checkpoint/writer.h"
#include "cli/command.h"
#include "cli/conversion.h"
#include "cli/machine.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "core/parallel.h"
#include "files/quote.h"

namespace octalane::cli {
namespace {

struct Options {
  CommonOptions common;
  std::string in, out, format, container = "auto";
  std::vector<std::string> only, keep;
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
    PickedFormat picked = format_for_row(*find_format(options.format), tensor.cols());
    task.why = std::move(picked.why);
    task.to = picked.format;
  }
  if (task.to != nullptr && !can_hold(container, *task.to)) {
    return fail("{}: tensor {}: {} has no place in {}, convert it too", file.path(), quote(tensor.name), task.to->name,
                container == Container::gguf ? "a GGUF file" : "a model folder");
  }
  return task;
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

Json task_json(const Task& task, double error) {
  const std::string& from = task.tensor->type;
  return {{"name", task.tensor->name},
          {"from", from},
          {"to", task.to != nullptr ? std::string(task.to->name) : from},
          {"rows_reordered", task.order.head_rows > 0},
          {"rel_error", error},
          {"why", task.why.empty() ? Json() : Json(task.why)}};
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
  Expected<GgufFile> metadata = output_metadata(options, file);
  if (!metadata) return fail_with(metadata);
  Expected<CheckpointWriter> writer = CheckpointWriter::create(options.out, container, std::move(*metadata));
  if (!writer) return fail_with(writer);
  if (const Status declared = declare_tensors(file, tasks, *writer); !declared) return fail_with(declared);

  const InterruptScope scope;
  Progress progress;
  Json tensors = Json::array();
  for (const Task& task : tasks) {
    progress.show(fmt::format("{} of {}: {}", tensors.size() + 1, tasks.size(), quote(task.tensor->name)));
    const Expected<double> error = task.to == nullptr             ? write_copied(task, *writer)
                                   : task.to->additive != nullptr ? write_codebooks(task, *writer)
                                                                  : write_converted(task, threads, *writer);
    if (!error) return fail_with(error);
    file.release(*task.tensor);
    tensors.push_back(task_json(task, *error));
  }
  if (const Status finished = writer->finish(); !finished) return fail_with(finished);
  return tensors;
}

void print_people(const Json& result) {
  Table table({{"tensor"}, {"from"}, {"to"}, {"relative error", Table::Align::right}, {""}});
  for (const Json& tensor : result["tensors"]) {
    table.add({quote(tensor["name"].get<std::string>()), tensor["from"].get<std::string>(),
               tensor["to"].get<std::string>(), fmt::format("{:.3e}", tensor["rel_error"].get<double>()),
               tensor["why"].is_null() ? "" : tensor["why"].get<std::string>()});
  }
  for (const Json& key : result["not_kept"]) fmt::print("not kept: {}\n", quote(key.get<std::string>()));
  fmt::print("{}\n{}: {} bytes, from {} bytes, in {:.1f} s\n", table.text(), result["output"].get<std::string>(),
             result["bytes_out"].get<uint64_t>(), result["bytes_in"].get<uint64_t>(), result["seconds"].get<double>());
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
  Expected<Json> tensors = convert(options, container, *file, context->threads());
  if (!tensors) return fail_with(tensors);
  const Json result{
      {"input", options.in},
      {"output", options.out},
      {"format", options.format},
      {"not_kept", container == Container::folder ? Json(keys_folders_lack(file->metadata())) : Json::array()},
      {"bytes_in", file->file_bytes()},
      {"container", container == Container::gguf ? "gguf" : "safetensors"},
      {"bytes_out", bytes_on_disk(options.out)},
      {"seconds", now_seconds() - start},
      {"tensors", std::move(*tensors)}};
  if (options.common.json) {
    print_json(result);
  } else {
    print_people(result);
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
      "are translated.");
  auto options = std::make_shared<Options>();
  flags.text("IN", options->in, kModelHelp, Need::required);
  flags.text("OUT", options->out, "What to write: a GGUF file, or a new folder for formats that begin with mlx-",
             Need::required);
  flags.choice("--format", options->format, encodable_formats(), "What the weights become", Need::required);
  flags.patterns("--tensor", options->only, "Convert only tensors of this name, copy the others");
  flags.patterns("--keep", options->keep, "Copy tensors of this name as they are, such as token_embd.weight");
  flags.choice("--container", options->container, {"auto", "gguf", "folder"},
               "Where the weights go; auto: a folder for mlx- formats, else a GGUF file");
  flags.common(options->common);
  return {flags.app(), [options] { return quantize(*options); }};
}

}  // namespace octalane::cli
