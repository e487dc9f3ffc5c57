#include "checkpoint/folder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstring>
#include <optional>

#include "checkpoint/additive_tensors.h"
#include "checkpoint/hf_names.h"
#include "files/quote.h"

namespace octalane {
namespace {

constexpr std::string_view kScales = ".scales", kCodes = ".codes", kCodebooks = ".codebooks";
/// Parts of a quantized layer beside "weight" and "scales"; the last two are two ways to say the same.
constexpr std::array<std::string_view, 3> kOtherParts{".biases", ".global_scale", ".weight_scale_2"};

struct Quantization {
  std::string mode;
  int64_t group = 0, bits = 0;
};

/// The modes of small floats, whose groups and bits are fixed.
struct FloatMode {
  std::string_view name;
  int64_t group, bits;
  std::string_view scale_type;  ///< what safetensors may call its scale bytes beside U8
};
constexpr std::array<FloatMode, 3> kFloatModes{
    {{"mxfp4", 32, 4, "F8_E8M0"}, {"mxfp8", 32, 8, "F8_E8M0"}, {"nvfp4", 16, 4, "F8_E4M3"}}};

const FloatMode* find_float_mode(std::string_view name) {
  const auto found = std::ranges::find(kFloatModes, name, &FloatMode::name);
  return found == kFloatModes.end() ? nullptr : &*found;
}

/// What config.json says of a layer's quantization. The error is why octalane does not compute with it.
Expected<Quantization> quantization_of(const Json& config, std::string_view path) {
  const Json* all = member(config, "quantization");
  if (all == nullptr) all = member(config, "quantization_config");
  if (all == nullptr || !all->is_object()) return fail("quantized, config.json does not say how");
  if (member(config, "quantization") == nullptr && member(*all, "quant_method") != nullptr) {
    return fail("quantized by {}", quote(text_of(member(*all, "quant_method")).value_or("?")));
  }
  const Json* own = member(*all, path);
  if (own != nullptr && !own->is_object() && *own != true) return fail("quantized, config.json says it is not");
  const Json& said = own != nullptr && own->is_object() ? *own : *all;
  const Json* mode = member(said, "mode");
  if (mode != nullptr && !mode->is_string()) return fail("quantized in a mode that is no text");
  Quantization out;
  out.mode = text_of(mode).value_or("affine");
  const FloatMode* fixed = find_float_mode(out.mode);
  if (fixed == nullptr && out.mode != "affine") return fail("quantized in mode {}", quote(out.mode));
  const Json *group = member(said, "group_size"), *bits = member(said, "bits");
  out.group = integer_of(group).value_or(group == nullptr && fixed != nullptr ? fixed->group : 0);
  out.bits = integer_of(bits).value_or(bits == nullptr && fixed != nullptr ? fixed->bits : 0);
  const bool sound = out.group >= 1 && out.group <= 4096 && out.bits >= 1 && out.bits <= 8;
  if (!sound || (fixed != nullptr && (out.group != fixed->group || out.bits != fixed->bits))) {
    return fail("quantized in mode {} with groups or bits that it does not have", out.mode);
  }
  return out;
}

/// "mlx-affine-4-g64", "-f16" and "-f32" for scales of other types than bfloat16.
std::string format_name(const Quantization& q, std::string_view scale_type, bool tensor_scale) {
  if (q.mode != "affine") return fmt::format("mlx-{}{}", q.mode, tensor_scale ? "-scaled" : "");
  const std::string_view suffix = scale_type == "F16" ? "-f16" : scale_type == "F32" ? "-f32" : "";
  return fmt::format("mlx-affine-{}-g{}{}", q.bits, q.group, suffix);
}

std::string shape_text(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

std::vector<int64_t> reversed(std::span<const int64_t> shape) { return {shape.rbegin(), shape.rend()}; }

class Collector {
 public:
  Collector(const SafetensorsSet& files, const Json& config) : files_(files), config_(config) {}

  Expected<FolderTensors> run() {
    for (const SafetensorsTensor& tensor : files_.tensors()) {
      if (const auto path = path_before(tensor.name, kCodes)) {
        if (const Status done = add_additive(tensor, *path); !done) return fail_with(done);
      } else if (const auto layer = path_before(tensor.name, kScales); layer && part(*layer, kCodes) == nullptr) {
        if (const Status done = add_layer(tensor, *layer); !done) return fail_with(done);
      } else if (!belongs_to_layer(tensor.name)) {
        add_dense(tensor);
      }
    }
    return std::move(out_);
  }

 private:
  const SafetensorsTensor* part(std::string_view path, std::string_view suffix) const {
    return files_.find_tensor(std::string(path).append(suffix));
  }

  static std::optional<std::string_view> path_before(std::string_view name, std::string_view suffix) {
    if (!name.ends_with(suffix)) return {};
    return name.substr(0, name.size() - suffix.size());
  }

  /// True for the other parts of a layer that has codes or scales.
  bool belongs_to_layer(std::string_view name) const {
    const auto of = [&](std::string_view suffix, std::string_view first) {
      const auto path = path_before(name, suffix);
      return path && part(*path, first) != nullptr;
    };
    const auto of_scales = [&](std::string_view suffix) { return of(suffix, kScales); };
    return of(kScales, kCodes) || of(kCodebooks, kCodes) || of_scales(".weight") ||
           std::ranges::any_of(kOtherParts, of_scales);
  }

  void add(CheckpointTensor tensor, std::vector<const SafetensorsTensor*> files) {
    for (const SafetensorsTensor* file : files) tensor.bytes += file->bytes;
    out_.tensors.push_back(std::move(tensor));
    out_.files.push_back(std::move(files));
  }

  void add_dense(const SafetensorsTensor& tensor) {
    std::string type(tensor.dtype);
    std::ranges::transform(type, type.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    const bool computed = type == "f32" || type == "f16" || type == "bf16";
    add({.name = std::string(tensor.name),
         .role = role_of_path(tensor.name),
         .type = type,
         .format = computed ? find_format(type) : nullptr,
         .shape = reversed(tensor.shape),
         .parts = {tensor.data}},
        {&tensor});
  }

  Status add_additive(const SafetensorsTensor& codes, std::string_view path) {
    const AdditiveFiles files{&codes, part(path, kCodebooks), part(path, kScales)};
    for (const auto& [suffix, tensor] : {std::pair{kCodebooks, files.codebooks}, {kScales, files.scales}}) {
      if (tensor == nullptr) return fail("{}: wanted {}{} beside it, got none", quote(codes.name), path, suffix);
    }
    if (const SafetensorsTensor* dense = part(path, ".weight")) {
      return fail("{}: wanted codes or a weight, got {} as well", quote(codes.name), quote(dense->name));
    }
    Expected<AdditiveLayer> layer = additive_layer(files, config_);
    if (!layer) return fail_with(layer);
    add({.name = std::string(path),
         .role = role_of_path(std::string(path) + ".weight"),
         .type = std::move(layer->type),
         .format = layer->format,
         .shape = layer->format != nullptr ? std::vector{layer->cols, layer->rows} : reversed(codes.shape),
         .parts = {codes.data, files.codebooks->data, files.scales->data}},
        {files.codes, files.codebooks, files.scales});
    return {};
  }

  Status add_layer(const SafetensorsTensor& scales, std::string_view path) {
    const SafetensorsTensor* weight = part(path, ".weight");
    if (weight == nullptr) {
      const std::string_view missing = part(path, kCodebooks) != nullptr ? kCodes : ".weight";
      return fail("{}: wanted {}{} beside it, got none", quote(scales.name), path, missing);
    }
    CheckpointTensor tensor{.name = std::string(path), .role = role_of_path(std::string(path) + ".weight")};
    std::vector<const SafetensorsTensor*> files{weight, &scales};
    for (const std::string_view suffix : kOtherParts) {
      if (const SafetensorsTensor* other = part(path, suffix)) files.push_back(other);
    }
    const Expected<Quantization> q = quantization_of(config_, path);
    if (!q) {
      tensor.type = q.error().message;
      tensor.shape = reversed(weight->shape);
      add(std::move(tensor), std::move(files));
      return {};
    }
    if (const Status fits = check_shapes(*q, *weight, scales); !fits) return fits;
    if (const Status fits = check_other_parts(*q, path, scales); !fits) return fits;
    tensor.shape = reversed(weight->shape);
    tensor.shape[0] = weight->shape.back() * 32 / q->bits;
    const bool tensor_scale = part(path, ".global_scale") != nullptr || part(path, ".weight_scale_2") != nullptr;
    tensor.type = format_name(*q, scales.dtype, tensor_scale);
    tensor.format = find_format(tensor.type);
    if (tensor.format != nullptr) {
      if (const Status found = find_parts(path, tensor); !found) return found;
    }
    add(std::move(tensor), std::move(files));
    return {};
  }

  static Status check_shapes(const Quantization& q, const SafetensorsTensor& weight, const SafetensorsTensor& scales) {
    if (weight.dtype != "U32" || weight.shape.size() < 2 || weight.bytes == 0) {
      return fail("{}: wanted a matrix of U32, got {} {}", quote(weight.name), weight.dtype, shape_text(weight.shape));
    }
    const int64_t bits = weight.shape.back() * 32, cols = bits / q.bits;
    if (bits % q.bits != 0 || cols % q.group != 0) {
      return fail("{}: {} words a row are no whole groups of {} codes of {} bits", quote(weight.name),
                  weight.shape.back(), q.group, q.bits);
    }
    const FloatMode* floats = find_float_mode(q.mode);
    const bool right_type = floats == nullptr ? scales.dtype == "BF16" || scales.dtype == "F16" || scales.dtype == "F32"
                                              : scales.dtype == "U8" || scales.dtype == floats->scale_type;
    std::vector<int64_t> shape = weight.shape;
    shape.back() = cols / q.group;
    if (right_type && scales.shape == shape) return {};
    return fail("{}: wanted {} {}, got {} {}", quote(scales.name), floats == nullptr ? "BF16, F16 or F32" : "U8",
                shape_text(shape), scales.dtype, shape_text(scales.shape));
  }

  /// Biases where a mode has them and nowhere else; at most one tensor scale, of nvfp4.
  Status check_other_parts(const Quantization& q, std::string_view path, const SafetensorsTensor& scales) const {
    const SafetensorsTensor* biases = part(path, ".biases");
    const SafetensorsTensor *amax = part(path, ".global_scale"), *factor = part(path, ".weight_scale_2");
    if (q.mode == "affine") {
      if (biases == nullptr) return fail("{}: wanted biases beside it, got none", quote(scales.name));
      if (biases->dtype != scales.dtype || biases->shape != scales.shape) {
        return fail("{}: wanted {} {} as the scales, got {} {}", quote(biases->name), scales.dtype,
                    shape_text(scales.shape), biases->dtype, shape_text(biases->shape));
      }
    } else if (biases != nullptr) {
      return fail("{}: mode {} has no biases", quote(biases->name), q.mode);
    }
    const SafetensorsTensor* scale = amax != nullptr ? amax : factor;
    if (scale != nullptr && q.mode != "nvfp4") return fail("{}: mode {} has no such scale", quote(scale->name), q.mode);
    if (amax != nullptr && factor != nullptr) {
      return fail("{}: wanted one scale of the matrix, got {} as well", quote(amax->name), quote(factor->name));
    }
    return {};
  }

  Status find_parts(std::string_view path, CheckpointTensor& tensor) {
    for (size_t i = 0; i < tensor.format->parts.size(); ++i) {
      const FormatPart& wanted = tensor.format->parts[i];
      if (wanted.per_matrix) {
        const Expected<float> scale = tensor_scale(path);
        if (!scale) return fail_with(scale);
        tensor.parts[i] = reinterpret_cast<const std::byte*>(out_.values.emplace_back(1, *scale).data());
      } else {
        tensor.parts[i] = part(path, fmt::format(".{}", wanted.suffix))->data;
      }
    }
    return {};
  }

  /// The factor of a matrix's scales, as ModelOpt keeps it, or its largest magnitude, as MLX does, over 6 * 448.
  Expected<float> tensor_scale(std::string_view path) const {
    const SafetensorsTensor* largest = part(path, ".global_scale");
    const SafetensorsTensor& file = largest != nullptr ? *largest : *part(path, ".weight_scale_2");
    if (file.dtype != "F32" || file.bytes != sizeof(float)) {
      return fail("{}: wanted one F32, got {} {}", quote(file.name), file.dtype, shape_text(file.shape));
    }
    float value = 0;
    std::memcpy(&value, file.data, sizeof value);
    if (!std::isfinite(value)) return fail("{}: wanted a finite number, got {}", quote(file.name), value);
    return largest != nullptr ? value / 2688.0f : value;
  }

  const SafetensorsSet& files_;
  const Json& config_;
  FolderTensors out_;
};

}  // namespace

Expected<FolderTensors> folder_tensors(const SafetensorsSet& files, const Json& config) {
  return Collector(files, config).run();
}

}  // namespace octalane
