#include "probe/operands.h"

#include <cstring>
#include <random>

#include "core/half.h"

namespace octalane {
namespace {

/// Fills memory with elements drawn by `draw`, a function that returns floats.
template <class Draw>
void fill_elements(ProbeElement element, std::byte* to, Draw draw) {
  const auto fill = [&]<class T>(T (*convert)(float)) {
    for (int64_t at = 0; at < kProbeOperandBytes; at += static_cast<int64_t>(sizeof(T))) {
      const T value = convert(draw());
      std::memcpy(to + at, &value, sizeof value);
    }
  };
  switch (element) {
    case ProbeElement::s8: return fill(+[](float v) { return static_cast<int8_t>(v); });
    case ProbeElement::bf16: return fill(+[](float v) { return f32_to_bf16(v); });
    case ProbeElement::f16: return fill(+[](float v) { return f32_to_f16(v); });
    case ProbeElement::f32: return fill(+[](float v) { return v; });
  }
}

}  // namespace

ProbeOperands::ProbeOperands() { std::memset(out_.data(), 0, kProbeOutBytes); }

ProbeOperands::ProbeOperands(ProbeElement element, uint32_t seed) : ProbeOperands() {
  std::minstd_rand random(seed);
  const float most = element == ProbeElement::s8 ? 127.0f : 1.0f;
  std::uniform_real_distribution<float> draw(-most, most), scale(-1, 1);
  fill_elements(element, operands_.data(), [&] { return draw(random); });
  for (int i = 0; i < 2 * kProbeScales; ++i) scales_[i] = scale(random);
}

ProbeOperands ProbeOperands::ones(ProbeElement element) {
  ProbeOperands made;
  fill_elements(element, made.operands_.data(), [] { return 1.0f; });
  for (int i = 0; i < 2 * kProbeScales; ++i) made.scales_[i] = i < kProbeScales ? 1.0f : 0.0f;
  return made;
}

}  // namespace octalane
