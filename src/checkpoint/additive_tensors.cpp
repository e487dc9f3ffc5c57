#include "checkpoint/additive_tensors.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <limits>

#include "files/quote.h"

namespace octalane {
namespace {

constexpr int64_t kMostSize = std::numeric_limits<int32_t>::max();

std::string text_of_shape(std::span<const int64_t> shape) { return fmt::format("[{}]", fmt::join(shape, ", ")); }

/// What is known of the layers' shape before their scales are looked at.
struct Said {
  AdditiveLayout layout;
  bool group_known = true;
};

/// Whole numbers of an object in config.json. The first that is missing or something else makes `error`.
struct Numbers {
  const Json& object;
  std::string error{};

  int64_t take(std::string_view key) {
    const auto value = integer_of(member(object, key));
    if (!value && error.empty()) error = fmt::format("additive codebooks, config.json has no whole number {}", key);
    return value.value_or(0);
  }
};

/// The error is why octalane does not compute with such layers.
Expected<Said> said_shape(int64_t books, int64_t vector, int64_t group, int64_t bits, bool by_rows) {
  const bool sound = (books == 1 || books == 2) && (by_rows ? vector == 8 : vector == 4 || vector == 8) &&
                     (group == -1 || group == 32 || group == 64 || group == 128) && bits == 8;
  if (!sound) {
    const std::string groups = by_rows ? "" : fmt::format(" and groups of {}", group);
    return fail("{} of {} codebooks of {} bits, vectors of {}{}", by_rows ? "aqlm" : "codegemm", books, bits, vector,
                groups);
  }
  return Said{
      {{static_cast<int>(books), static_cast<int>(vector), static_cast<int>(std::max<int64_t>(group, 0))}, by_rows}};
}

Expected<Said> shape_in_config(const AdditiveFiles& files, const Json& config) {
  if (const Json* own = member(config, "codegemm")) {
    Numbers numbers{*own};
    const int64_t books = numbers.take("num_codebooks"), vector = numbers.take("vec_len");
    const int64_t group = numbers.take("group_size"), bits = numbers.take("nbits_per_codebook");
    if (!numbers.error.empty()) return fail("{}", numbers.error);
    return said_shape(books, vector, group, bits, false);
  }
  const Json* other = member(config, "quantization_config");
  const auto method = other != nullptr ? text_of(member(*other, "quant_method")) : std::nullopt;
  if (method == "aqlm") {
    Numbers numbers{*other};
    const int64_t books = numbers.take("num_codebooks"), vector = numbers.take("in_group_size");
    const int64_t rows = numbers.take("out_group_size"), bits = numbers.take("nbits_per_codebook");
    if (!numbers.error.empty()) return fail("{}", numbers.error);
    if (rows != 1) return fail("aqlm of vectors over {} rows", rows);
    return said_shape(books, vector, -1, bits, true);
  }
  // Without a word in config.json: m and v are the first and the last dimension of the codebooks.
  const std::vector<int64_t>& shape = files.codebooks->shape;
  const bool by_rows = files.codes->dtype == "I8";
  if (shape.size() < 3) return fail("additive codebooks of shape {}", text_of_shape(shape));
  Expected<Said> said = said_shape(shape.front(), shape.back(), -1, 8, by_rows);
  if (said) said->group_known = by_rows;
  return said;
}

/// The group that gives a row of `cols` columns this many scales. One scale is one scale, whatever the group.
Expected<int> group_of(const SafetensorsTensor& scales, int64_t cols) {
  const int64_t groups = scales.shape.empty() ? 0 : scales.shape.front();
  for (const int group : {0, 32, 64, 128}) {
    if (AdditiveShape{.group = group}.groups(cols) == groups) return group;
  }
  return fail("{}: wanted a scale for every 32, 64 or 128 of {} columns or for the row, got {}", quote(scales.name),
              cols, groups);
}

Status check_header(const SafetensorsTensor& tensor, const TensorHeader& wanted) {
  if (tensor.dtype == wanted.dtype && tensor.shape == wanted.shape) return {};
  return fail("{}: wanted {} {}, got {} {}", quote(tensor.name), wanted.dtype, text_of_shape(wanted.shape),
              tensor.dtype, text_of_shape(tensor.shape));
}

}  // namespace

std::array<TensorHeader, 3> additive_headers(const AdditiveLayout& layout, int64_t rows, int64_t cols) {
  const AdditiveShape& shape = layout.shape;
  const int64_t vectors = cols / shape.vector;
  if (layout.by_rows) {
    return {TensorHeader{kAdditiveParts[0], "I8", {rows, vectors, shape.books}},
            TensorHeader{kAdditiveParts[1], "F16", {shape.books, kCodewords, 1, shape.vector}},
            TensorHeader{kAdditiveParts[2], "F16", {rows, 1, 1, 1}}};
  }
  return {TensorHeader{kAdditiveParts[0], "I32", {shape.books, vectors / 4, rows}},
          TensorHeader{kAdditiveParts[1], "F16", {shape.books, kCodewords, shape.vector}},
          TensorHeader{kAdditiveParts[2], "F16", {shape.groups(cols), rows}}};
}

Expected<AdditiveLayer> additive_layer(const AdditiveFiles& files, const Json& config) {
  Expected<Said> said = shape_in_config(files, config);
  if (!said) return AdditiveLayer{said.error().message};
  AdditiveLayout& layout = said->layout;
  const SafetensorsTensor& codes = *files.codes;
  const auto in_range = [](int64_t size) { return size >= 1 && size <= kMostSize; };
  if (codes.shape.size() != 3 || !std::ranges::all_of(codes.shape, in_range)) {
    return fail("{}: wanted three dimensions of 1 to {}, got {}", quote(codes.name), kMostSize,
                text_of_shape(codes.shape));
  }
  const int64_t rows = layout.by_rows ? codes.shape[0] : codes.shape[2];
  const int64_t cols = codes.shape[1] * layout.shape.vector * (layout.by_rows ? 1 : 4);
  if (cols % 32 != 0) {
    return fail("{}: wanted a multiple of 32 columns, got {} of {}", quote(codes.name), cols,
                text_of_shape(codes.shape));
  }
  if (!said->group_known) {
    const Expected<int> group = group_of(*files.scales, cols);
    if (!group) return fail_with(group);
    layout.shape.group = *group;
  }
  const std::array<TensorHeader, 3> wanted = additive_headers(layout, rows, cols);
  const std::array tensors{files.codes, files.codebooks, files.scales};
  for (size_t i = 0; i < wanted.size(); ++i) {
    if (const Status fits = check_header(*tensors[i], wanted[i]); !fits) return fail_with(fits);
  }
  const Format& format = *find_additive_format(layout);
  const StoredMatrix matrix{&format, rows, cols, {codes.data, files.codebooks->data, files.scales->data}};
  if (const Status sound_values = matrix.check(); !sound_values) {
    return fail("{}: {}", quote(files.codebooks->name), sound_values.error().message);
  }
  return AdditiveLayer{std::string(format.name), &format, rows, cols};
}

void set_additive_config(const Format& format, const std::vector<std::string>& dense, Json& config) {
  const AdditiveLayout& layout = *format.additive;
  if (layout.by_rows) {
    config["quantization_config"] = {{"quant_method", "aqlm"},  {"in_group_size", layout.shape.vector},
                                     {"out_group_size", 1},     {"num_codebooks", layout.shape.books},
                                     {"nbits_per_codebook", 8}, {"linear_weights_not_to_quantize", dense}};
    return;
  }
  const Json layers{"self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj", "self_attn.o_proj",
                    "mlp.gate_proj",    "mlp.up_proj",      "mlp.down_proj"};
  config["codegemm"] = {{"arch_config", {{"layers_name", "layers"}, {"model_name", "model"}, {"module_names", layers}}},
                        {"group_size", layout.shape.group == 0 ? -1 : layout.shape.group},
                        {"vec_len", layout.shape.vector},
                        {"num_codebooks", layout.shape.books},
                        {"nbits_per_codebook", 8}};
}

}  // namespace octalane
