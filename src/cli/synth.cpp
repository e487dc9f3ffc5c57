// synth --like NAME --format F OUT: a file of random weights in a real model's shapes, to measure speed without it.
#include <fmt/format.h>

#include <cmath>
#include <cstring>
#include <map>
#include <numbers>

#include "cli/command.h"
#include "cli/conversion.h"
#include "cli/machine.h"
#include "cli/random_blocks.h"
#include "cli/synth_shapes.h"
#include "cli/synth_vocabulary.h"
#include "cli/terminal.h"
#include "core/parallel.h"

namespace octalane::cli {
namespace {

struct Options {
  CommonOptions common;
  std::string like, format, out, container = "auto";
  uint64_t seed = 1;
};

enum class Content { weights, norm, bias, rope_factors };

struct Task {
  std::string name;
  Content content;
  std::vector<int64_t> shape;
  const Format* format;
};

class TaskList {
 public:
  explicit TaskList(const Format& format) : format_(format), f32_(*find_format("f32")) {}

  void matrix(const std::string& name, int64_t cols, int64_t rows) {
    PickedFormat picked = format_for_matrix(format_, name + ".weight", cols);
    if (!picked.why.empty()) fallbacks[fmt::format("{}: {}", picked.format->name, picked.why)] += 1;
    tasks.push_back({name + ".weight", Content::weights, {cols, rows}, picked.format});
    weights += cols * rows;
  }
  void vector(const std::string& name, Content content, int64_t size) {
    tasks.push_back({name, content, {size}, &f32_});
    weights += size;
  }

  std::vector<Task> tasks;
  std::map<std::string, int> fallbacks;
  int64_t weights = 0;

 private:
  const Format& format_;
  const Format& f32_;
};

TaskList list_tensors(const SynthShape& shape, const Format& format) {
  TaskList list(format);
  const int64_t width = shape.embedding;
  const int64_t q = shape.heads * shape.head_dim;
  const int64_t kv = shape.kv_heads * shape.head_dim;
  list.matrix("token_embd", width, shape.vocabulary);
  for (int64_t layer = 0; layer < shape.layers; ++layer) {
    const std::string block = fmt::format("blk.{}.", layer);
    list.vector(block + "attn_norm.weight", Content::norm, width);
    for (const auto& [name, rows] : {std::pair{"attn_q", q}, {"attn_k", kv}, {"attn_v", kv}}) {
      list.matrix(block + name, width, rows);
      if (shape.qkv_bias) list.vector(block + name + ".bias", Content::bias, rows);
    }
    if (shape.qk_norm) {
      list.vector(block + "attn_q_norm.weight", Content::norm, shape.head_dim);
      list.vector(block + "attn_k_norm.weight", Content::norm, shape.head_dim);
    }
    list.matrix(block + "attn_output", q, width);
    list.vector(block + "ffn_norm.weight", Content::norm, width);
    list.matrix(block + "ffn_gate", width, shape.feed_forward);
    list.matrix(block + "ffn_up", width, shape.feed_forward);
    list.matrix(block + "ffn_down", shape.feed_forward, width);
  }
  list.vector("output_norm.weight", Content::norm, width);
  if (!shape.tied_output) list.matrix("output", width, shape.vocabulary);
  if (shape.rope_factor > 0) list.vector("rope_freqs.weight", Content::rope_factors, shape.head_dim / 2);
  return list;
}

void set_metadata(GgufWriter& writer, const SynthShape& shape, const Format& format) {
  const auto number = [&](const std::string& key, int64_t value) {
    writer.set(fmt::format("{}.{}", shape.architecture, key), GgufType::u32, static_cast<uint64_t>(value));
  };
  const auto real = [&](const std::string& key, double value) {
    writer.set(fmt::format("{}.{}", shape.architecture, key), GgufType::f32, value);
  };
  const std::string name = fmt::format("random weights in the shapes of {}", shape.name);
  writer.set("general.architecture", GgufType::string, shape.architecture);
  writer.set("general.name", GgufType::string, std::string_view(name));
  if (const int64_t type = gguf_file_type(format); type >= 0) {
    writer.set("general.file_type", GgufType::u32, static_cast<uint64_t>(type));
  }
  writer.set("general.quantization_version", GgufType::u32, kQuantizationVersion);
  number("block_count", shape.layers);
  number("context_length", shape.context);
  number("embedding_length", shape.embedding);
  number("feed_forward_length", shape.feed_forward);
  number("attention.head_count", shape.heads);
  number("attention.head_count_kv", shape.kv_heads);
  number("attention.key_length", shape.head_dim);
  number("attention.value_length", shape.head_dim);
  number("rope.dimension_count", shape.head_dim);
  number("vocab_size", shape.vocabulary);
  real("rope.freq_base", shape.rope_base);
  real("attention.layer_norm_rms_epsilon", shape.norm_epsilon);
  set_byte_vocabulary(writer, shape.pre_tokenizer, shape.vocabulary);
}

/// Llama 3.1's divisors of the rotary frequencies: 1 for wavelengths below 8192 / 4, `factor` above 8192 / 1, and a
/// smooth passage between (rope_scaling of type "llama3": low_freq_factor 1, high_freq_factor 4, original length 8192).
std::vector<float> rope_factors(const SynthShape& shape, int64_t count) {
  constexpr double kLength = 8192, kLow = 1, kHigh = 4;
  std::vector<float> factors;
  for (int64_t i = 0; i < count; ++i) {
    const double frequency =
        std::pow(shape.rope_base, -2.0 * static_cast<double>(i) / static_cast<double>(shape.head_dim));
    const double turns = kLength * frequency / (2 * std::numbers::pi);
    const double smooth = std::clamp((turns - kLow) / (kHigh - kLow), 0.0, 1.0);
    factors.push_back(static_cast<float>(1 / ((1 - smooth) / shape.rope_factor + smooth)));
  }
  return factors;
}

class Synthesizer {
 public:
  Synthesizer(const SynthShape& shape, uint64_t seed, int threads) : shape_(shape), seed_(seed), threads_(threads) {}

  Status write(const Task& task, uint64_t stream, CheckpointWriter& writer) {
    return task.content == Content::weights ? write_matrix(task, stream, writer) : write_vector(task, stream, writer);
  }

 private:
  /// Standard deviation 1 / sqrt(columns), so that products of normalised inputs have unit variance.
  const RandomBlocks& blocks(const Format& format, int64_t cols) {
    const auto key = std::pair{&format, cols};
    const auto found = pools_.find(key);
    if (found != pools_.end()) return found->second;
    const double deviation = 1 / std::sqrt(static_cast<double>(cols));
    return pools_.emplace(key, RandomBlocks(format, deviation, seed_, threads_)).first->second;
  }

  Status write_matrix(const Task& task, uint64_t stream, CheckpointWriter& writer) {
    constexpr int64_t kSliceBytes = 16 << 20;
    const int64_t cols = task.shape[0], rows = task.shape[1];
    if (const AdditiveLayout* layout = task.format->additive) {
      if (interrupted()) return fail("interrupted");
      return writer.write(random_additive(layout->shape, rows, cols, 1 / std::sqrt(static_cast<double>(cols)), seed_,
                                          stream, threads_));
    }
    const RandomBlocks& random = blocks(*task.format, cols);
    const int64_t row_bytes = task.format->row_bytes(cols);
    const int64_t slice = std::min(rows, kSliceBytes / row_bytes + 1);
    std::vector<std::byte> bytes(static_cast<size_t>(slice * row_bytes));
    for (int64_t first = 0; first < rows; first += slice) {
      const int64_t count = std::min(slice, rows - first);
      parallel_for(threads_, count, 1, [&](int, int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) random.fill_row(stream, first + i, cols, bytes.data() + i * row_bytes);
      });
      if (interrupted()) return fail("interrupted");
      const Status written = writer.write({bytes.data(), static_cast<size_t>(count * row_bytes)});
      if (!written) return written;
    }
    return {};
  }

  Status write_vector(const Task& task, uint64_t stream, CheckpointWriter& writer) {
    std::vector<float> values(static_cast<size_t>(task.shape[0]));
    if (task.content == Content::rope_factors) {
      values = rope_factors(shape_, task.shape[0]);
    } else {
      Gaussian(seed_ + stream).fill(values, task.content == Content::norm ? 0.05 : 0.1);
      if (task.content == Content::norm) {
        for (float& value : values) value += 1;
      }
    }
    return writer.write(std::as_bytes(std::span(values)));
  }

  const SynthShape& shape_;
  uint64_t seed_;
  int threads_;
  std::map<std::pair<const Format*, int64_t>, RandomBlocks> pools_;
};

Status write_file(const Options& options, const SynthShape& shape, const TaskList& list, int threads) {
  const Format& format = *find_format(options.format);
  GgufWriter keys = GgufWriter::in_memory(options.out);
  set_metadata(keys, shape, format);
  Expected<GgufFile> metadata = keys.take();
  if (!metadata) return fail_with(metadata);
  Expected<CheckpointWriter> writer = CheckpointWriter::create(
      options.out, output_container(options.out, options.container, format), std::move(*metadata));
  if (!writer) return fail_with(writer);
  for (const Task& task : list.tasks) {
    const Status added = writer->add_tensor(task.name, *task.format, task.shape);
    if (!added) return added;
  }
  const InterruptScope scope;
  Progress progress;
  Synthesizer synthesizer(shape, options.seed, threads);
  for (size_t i = 0; i < list.tasks.size(); ++i) {
    progress.show(fmt::format("{} of {}: {}", i + 1, list.tasks.size(), list.tasks[i].name));
    if (const Status written = synthesizer.write(list.tasks[i], i, *writer); !written) return written;
  }
  return writer->finish();
}

Expected<int> synth(const Options& options) {
  const double start = now_seconds();
  const Expected<Context> context = make_context(options.common);
  if (!context) return fail_with(context);
  const SynthShape& shape = *find_synth_shape(options.like);
  const TaskList list = list_tensors(shape, *find_format(options.format));
  if (const Status written = write_file(options, shape, list, context->threads()); !written) return fail_with(written);

  const uint64_t bytes = bytes_on_disk(options.out);
  const double seconds = now_seconds() - start;
  if (options.common.json) {
    Json fallbacks = Json::array();
    for (const auto& [why, count] : list.fallbacks) fallbacks.push_back({{"why", why}, {"tensors", count}});
    print_json({{"output", options.out},
                {"like", shape.name},
                {"format", options.format},
                {"seed", options.seed},
                {"tensors", list.tasks.size()},
                {"weights", list.weights},
                {"bytes", bytes},
                {"seconds", seconds},
                {"fallbacks", std::move(fallbacks)}});
    return 0;
  }
  for (const auto& [why, count] : list.fallbacks) fmt::print("{} tensors are {}\n", count, why);
  fmt::print("{}: {} tensors, {:.3f} billion weights, {} bytes in {:.1f} s\n", options.out, list.tasks.size(),
             1e-9 * static_cast<double>(list.weights), bytes, seconds);
  return 0;
}

}  // namespace

Command synth_command(CLI::App& parent) {
  Flags flags(parent, "synth", "Write a model file of random weights in a real model's shapes");
  flags.footer(
      "4096 blocks of Gaussian values of standard deviation 1/sqrt(columns) are quantized per format and width; each "
      "block "
      "of each row is a copy of one of them, drawn by a generator seeded with the seed, the tensor and the row. "
      "Additive "
      "codebooks get random codes, Gaussian codewords and positive scales; embedding and output are f16 beside them. "
      "The "
      "vocabulary is one token per byte, three control tokens, then unused ones.");
  auto options = std::make_shared<Options>();
  std::vector<std::string> names;
  for (const SynthShape& shape : synth_shapes()) names.emplace_back(shape.name);
  flags.text("OUT", options->out, "The GGUF file to write, or a new folder for formats of MLX and additive codebooks",
             Need::required);
  flags.choice("--like", options->like, names, "Whose shapes", Need::required);
  flags.choice("--format", options->format, random_formats(), "Format of the weights (norms and biases are f32)",
               Need::required);
  flags.choice("--container", options->container, {"auto", "gguf", "folder"},
               "Where the weights go; auto: a folder for formats that GGUF lacks, else a GGUF file");
  flags.seed(options->seed, "Seed of the weights");
  flags.common(options->common);
  return {flags.app(), [options] { return synth(*options); }};
}

}  // namespace octalane::cli
