#include <array>

#include "formats/families.h"
#include "formats/format.h"

namespace octalane {
namespace {

constexpr std::array<const Format*, 20> singles = {
    &family::f32,   &family::f16,       &family::q4_0,      &family::q4_1,      &family::q5_0,
    &family::q5_1,  &family::q8_0,      &family::q2_k,      &family::q3_k,      &family::q4_k,
    &family::q5_k,  &family::q6_k,      &family::iq4_nl,    &family::iq4_xs,    &family::bf16,
    &family::mxfp4, &family::mlx_mxfp4, &family::mlx_mxfp8, &family::mlx_nvfp4, &family::mlx_nvfp4_scaled,
};

constexpr auto table = [] {
  std::array<const Format*, singles.size() + family::mlx_affine.size() + family::additive_codebooks.size()> all{};
  size_t count = 0;
  for (const Format* format : singles) all[count++] = format;
  for (size_t i = 0; i < family::mlx_affine.size(); ++i) all[count++] = &family::mlx_affine[i];
  for (size_t i = 0; i < family::additive_codebooks.size(); ++i) all[count++] = &family::additive_codebooks[i];
  return all;
}();

}  // namespace

std::span<const Format* const> formats() { return table; }

const Format* find_format(std::string_view name) {
  for (const Format* format : table) {
    if (format->name == name) return format;
  }
  return nullptr;
}

const Format* find_ggml_format(uint32_t ggml_type) {
  for (const Format* format : table) {
    if (format->ggml_type >= 0 && static_cast<uint32_t>(format->ggml_type) == ggml_type) return format;
  }
  return nullptr;
}

}  // namespace octalane
