// F32, F16, BF16: the element is the float itself.
#include <cstring>

#include "core/half.h"
#include "formats/families.h"

namespace octalane {
namespace {

template <int bytes_each>
void copy_elements(const std::byte* bytes, int64_t cols, const PlaneRow& out) {
  std::memcpy(out.elements, bytes, static_cast<size_t>(cols) * bytes_each);
}

void encode_f32(const float* values, int64_t cols, std::byte* out) {
  std::memcpy(out, values, static_cast<size_t>(cols) * sizeof(float));
}

template <uint16_t (*convert)(float)>
void encode_16(const float* values, int64_t cols, std::byte* out) {
  for (int64_t c = 0; c < cols; ++c) {
    const uint16_t bits = convert(values[c]);
    std::memcpy(out + 2 * c, &bits, sizeof bits);
  }
}

constexpr WeightSpec float_spec(CodeMap map, uint8_t bits) { return {.code = {.map = map, .bits = bits}, .scale = {}}; }

}  // namespace

namespace family {

constinit const Format f32{.name = "f32",
                           .ggml_type = 0,
                           .block = 1,
                           .block_bytes = 4,
                           .spec = float_spec(CodeMap::f32, 32),
                           .to_planes = copy_elements<4>,
                           .from_float = encode_f32};

constinit const Format f16{.name = "f16",
                           .ggml_type = 1,
                           .block = 1,
                           .block_bytes = 2,
                           .spec = float_spec(CodeMap::f16, 16),
                           .to_planes = copy_elements<2>,
                           .from_float = encode_16<f32_to_f16>};

constinit const Format bf16{.name = "bf16",
                            .ggml_type = 30,
                            .block = 1,
                            .block_bytes = 2,
                            .spec = float_spec(CodeMap::bf16, 16),
                            .to_planes = copy_elements<2>,
                            .from_float = encode_16<f32_to_bf16>};

}  // namespace family
}  // namespace octalane
