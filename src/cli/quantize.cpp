// quantize IN OUT --format F: converts the weights of a GGUF file, tensor by tensor.
#include <fmt/format.h>

#include <cmath>
#include <filesystem>
#include <map>

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
  std::string in, out, format;
  std::vector<std::string> only, keep;
};

/// What becomes of one tensor.
struct Task {
  const CheckpointTensor* tensor;
  const Format* from = nullptr;  ///< null = its bytes are copied as they are
  const Format* to = nullptr;
  std::string why;  ///< when it does not get the format asked for
};

constexpr int64_t kSliceBytes = 16 << 20;  ///< of output held at once

/// Vectors (norms, biases) become f32, weights the wanted format or its fallback, the rest stays.
Expected<Task> make_task(const Options& options, const Checkpoint& file, const CheckpointTensor& tensor) {
  Task task{&tensor};
  if (!options.only.empty() && !matches_any(tensor.name, options.only)) {
    task.why = "not among the tensors asked for";
    return task;
  }
  if (matches_any(tensor.name, options.keep)) {
    task.why = "kept as asked";
    return task;
  }
  const Format* from = tensor.format;
  if (tensor.shape.size() < 2) {
    task.why = "not a matrix: kept exact";
    if (from == nullptr || from->name == "f32") return task;
    task.from = from;
    task.to = find_format("f32");
    return task;
  }
  const Expected<const Format*> checked = tensor_format(file, tensor);
  if (!checked) return fail_with(checked);
  PickedFormat picked = format_for_row(*find_format(options.format), tensor.cols());
  task.why = std::move(picked.why);
  if (picked.format == from) return task;
  task.from = from;
  task.to = picked.format;
  return task;
}

/// Squared distance and squared norm of a row.
struct RowError {
  double difference = 0, norm = 0;
};

RowError convert_row(const Task& task, int64_t row, std::byte* out) {
  const int64_t cols = task.tensor->cols();
  std::vector<float> before(static_cast<size_t>(cols)), after(before);
  const auto decode = [cols](const StoredMatrix& matrix, int64_t r, std::vector<float>& values) {
    Planes planes(matrix.format->spec, 1, cols);
    matrix.to_planes(r, planes.row(0));
    decode_row(matrix.format->spec, planes.row(0), cols, values.data());
  };
  decode(task.tensor->matrix(), row, before);
  task.to->from_float(before.data(), cols, out);
  decode({task.to, 1, cols, {out}}, 0, after);
  RowError error;
  for (size_t i = 0; i < before.size(); ++i) {
    const double distance = double{after[i]} - double{before[i]};
    error.difference += distance * distance;
    error.norm += double{before[i]} * double{before[i]};
  }
  return error;
}

/// Writes one tensor and returns its relative L2 error: |after - before| / |before|.
Expected<double> write_converted(const Task& task, int threads, GgufWriter& writer) {
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
    const Status written = writer.write_tensor({bytes.data(), static_cast<size_t>(count * row_bytes)});
    if (!written) return fail_with(written);
  }
  RowError sum;
  for (const RowError& error : errors) {
    sum.difference += error.difference;
    sum.norm += error.norm;
  }
  return sum.norm > 0 ? std::sqrt(sum.difference / sum.norm) : 0.0;
}

Expected<double> write_copied(const Task& task, GgufWriter& writer) {
  std::span<const std::byte> rest(task.tensor->parts[0], task.tensor->bytes);
  while (!rest.empty()) {
    const std::span<const std::byte> piece = rest.first(std::min<size_t>(rest.size(), kSliceBytes));
    if (interrupted()) return fail("interrupted");
    if (const Status written = writer.write_tensor(piece); !written) return fail_with(written);
    rest = rest.subspan(piece.size());
  }
  return 0.0;
}

Json task_json(const Task& task, double error) {
  const std::string& from = task.tensor->type;
  return {{"name", task.tensor->name},
          {"from", from},
          {"to", task.to != nullptr ? std::string(task.to->name) : from},
          {"rel_error", error},
          {"why", task.why.empty() ? Json() : Json(task.why)}};
}

Status write_header(const Options& options, const Checkpoint& file, const std::vector<Task>& tasks,
                    GgufWriter& writer) {
  for (const auto& [key, value] : file.metadata().metadata()) writer.copy(key, value);
  const int64_t file_type = gguf_file_type(*find_format(options.format));
  if (file_type >= 0) writer.set("general.file_type", GgufType::u32, static_cast<uint64_t>(file_type));
  writer.set("general.quantization_version", GgufType::u32, kQuantizationVersion);
  for (const Task& task : tasks) {
    const CheckpointTensor& tensor = *task.tensor;
    const auto type = task.to != nullptr ? static_cast<uint32_t>(task.to->ggml_type)
                                         : file.metadata().find_tensor(tensor.name)->ggml_type;
    if (const Status added = writer.add_tensor(tensor.name, type, tensor.shape); !added) return added;
  }
  return {};
}

Expected<Json> convert(const Options& options, const Checkpoint& file, int threads) {
  std::vector<Task> tasks;
  for (const CheckpointTensor& tensor : file.tensors()) {
    Expected<Task> task = make_task(options, file, tensor);
    if (!task) return fail_with(task);
    tasks.push_back(std::move(*task));
  }
  Expected<GgufWriter> writer = GgufWriter::create(options.out);
  if (!writer) return fail_with(writer);
  if (const Status header = write_header(options, file, tasks, *writer); !header) return fail_with(header);

  const InterruptScope scope;
  Progress progress;
  Json tensors = Json::array();
  for (const Task& task : tasks) {
    progress.show(fmt::format("{} of {}: {}", tensors.size() + 1, tasks.size(), quote(task.tensor->name)));
    const Expected<double> error =
        task.to != nullptr ? write_converted(task, threads, *writer) : write_copied(task, *writer);
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
  const Expected<Context> context = make_context(options.common);
  if (!context) return fail_with(context);
  Expected<Json> tensors = convert(options, *file, context->threads());
  if (!tensors) return fail_with(tensors);
  const Json result{{"input", options.in},
                    {"output", options.out},
                    {"format", options.format},
                    {"bytes_in", file->file_bytes()},
                    {"bytes_out", std::filesystem::file_size(options.out)},
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
  Flags flags(parent, "quantize", "Convert the weights of a GGUF file");
  flags.footer(
      "Matrices get the format asked for, embedding and output included; where a row is not a multiple of its block, "
      "the "
      "nearest format of smaller blocks with at least its bits. Vectors (norms, biases) become f32, which is exact.");
  auto options = std::make_shared<Options>();
  flags.text("IN", options->in, "A GGUF file", Need::required);
  flags.text("OUT", options->out, "The GGUF file to write", Need::required);
  flags.choice("--format", options->format, writable_formats(), "What the weights become", Need::required);
  flags.patterns("--tensor", options->only, "Convert only tensors of this name, copy the others");
  flags.patterns("--keep", options->keep, "Copy tensors of this name as they are, such as token_embd.weight");
  flags.common(options->common);
  return {flags.app(), [options] { return quantize(*options); }};
}

}  // namespace octalane::cli
