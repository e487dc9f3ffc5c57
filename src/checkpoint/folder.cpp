#include "checkpoint/folder.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cstring>
#include <optional>

#include "checkpoint/hf_names.h"
#include "files/quote.h"

namespace octalane {
namespace {

constexpr std::string_view kScales = ".scales";
/// Parts of a quantized layer beside "weight" and "scales"; the last two are two ways to say the same.
constexpr std::array<std::string_view, 3> kOtherParts{".biases", ".global_scale", ".weight_scale_2"};

struct Quantization {
  std::string mode;
  int64_t group = 0, bits = 0;
};

/// What config.json says of a layer; nothing when it says nothing that makes sense.
std::optional<Quantization> quantization_of(const Json& config, std::string_view path) {
  const Json* all = member(config, "quantization");
  if (all == nullptr) all = member(config, "quantization_config");
  if (all == nullptr) return {};
  const Json* own = member(*all, path);
  const Json& said = own != nullptr && own->is_object() ? *own : *all;
  Quantization out;
  out.mode = text_of(member(said, "mode")).value_or("affine");
  const bool fixed = out.mode == "mxfp4" || out.mode == "mxfp8" || out.mode == "nvfp4";
  const auto group = integer_of(member(said, "group_size")), bits = integer_of(member(said, "bits"));
  out.group = group.value_or(fixed ? (out.mode == "nvfp4" ? 16 : 32) : 0);
  out.bits = bits.value_or(fixed ? (out.mode == "mxfp8" ? 8 : 4) : 0);
  if (out.group < 1 || out.group > 4096 || out.bits < 1 || out.bits > 8) return {};
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
      if (tensor.name.ends_with(kScales)) {
        const Status done = add_layer(tensor, tensor.name.substr(0, tensor.name.size() - kScales.size()));
        if (!done) return fail_with(done);
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

  /// True for the other parts of a layer that has scales.
  bool belongs_to_layer(std::string_view name) const {
    const auto of = [&](std::string_view suffix) {
      return name.ends_with(suffix) && part(name.substr(0, name.size() - suffix.size()), kScales) != nullptr;
    };
    return of(".weight") || std::ranges::any_of(kOtherParts, of);
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

  Status add_layer(const SafetensorsTensor& scales, std::string_view path) {
    const SafetensorsTensor* weight = part(path, ".weight");
    if (weight == nullptr) return fail("{}: wanted {}.weight beside it, got none", quote(scales.name), path);
    CheckpointTensor tensor{.name = std::string(path), .role = role_of_path(std::string(path) + ".weight")};
    std::vector<const SafetensorsTensor*> files{weight, &scales};
    for (const std::string_view suffix : kOtherParts) {
      if (const SafetensorsTensor* other = part(path, suffix)) files.push_back(other);
    }
    const std::optional<Quantization> q = quantization_of(config_, path);
    if (!q) {
      tensor.type = "quantized, config.json does not say how";
      tensor.shape = reversed(weight->shape);
      add(std::move(tensor), std::move(files));
      return {};
    }
    if (const Status fits = check_shapes(*q, *weight, scales, part(path, ".biases")); !fits) return fits;
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

  static Status check_shapes(const Quantization& q, const SafetensorsTensor& weight, const SafetensorsTensor& scales,
                             const SafetensorsTensor* biases) {
    if (weight.dtype != "U32" || weight.shape.size() < 2) {
      return fail("{}: wanted a matrix of U32, got {} {}", quote(weight.name), weight.dtype, shape_text(weight.shape));
    }
    const int64_t bits = weight.shape.back() * 32, cols = bits / q.bits;
    if (bits % q.bits != 0 || cols % q.group != 0) {
      return fail("{}: {} words a row are no whole groups of {} codes of {} bits", quote(weight.name),
                  weight.shape.back(), q.group, q.bits);
    }
    const std::string_view wanted = q.mode == "affine" ? "BF16, F16 or F32" : "U8";
    const bool right_type = q.mode == "affine"
                                ? scales.dtype == "BF16" || scales.dtype == "F16" || scales.dtype == "F32"
                                : scales.dtype == "U8" || scales.dtype == "F8_E4M3" || scales.dtype == "F8_E8M0";
    std::vector<int64_t> shape = weight.shape;
    shape.back() = cols / q.group;
    if (!right_type || scales.shape != shape) {
      return fail("{}: wanted {} {}, got {} {}", quote(scales.name), wanted, shape_text(shape), scales.dtype,
                  shape_text(scales.shape));
    }
    if (q.mode != "affine") return {};
    if (biases == nullptr) return fail("{}: wanted biases beside it, got none", quote(scales.name));
    if (biases->dtype != scales.dtype || biases->shape != scales.shape) {
      return fail("{}: wanted {} {} as the scales, got {} {}", quote(biases->name), scales.dtype,
                  shape_text(scales.shape), biases->dtype, shape_text(biases->shape));
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
