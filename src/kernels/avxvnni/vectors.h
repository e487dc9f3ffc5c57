// What the loops of kernels/tiles/ ask for, see there: two vectors for the sixteen rows of a tile.
#pragma once

#include "kernels/avx2/unpack.h"
#include "kernels/avxvnni/kernels.h"

namespace octalane::avxvnni {
namespace {

struct Vectors {
  struct Ints {
    __m256i v[2];
  };
  using Floats = avx2::Pair;
  using Table = __m256i;
  using Scales = avx2::GroupScales;
  using Rows = avx2::TileRows;
  static constexpr int kTiles = 1, kS8Tokens = avxvnni::kS8Tokens, kLeastS8Tokens = avxvnni::kLeastS8Tokens;
  static constexpr int kS8PanelCols = avxvnni::kS8PanelCols, kGemvTokens = avxvnni::kGemvTokens, kGemvBlocks = 1;

  OCTALANE_INLINE static Ints both(__m256i a) { return {{a, a}}; }
  OCTALANE_INLINE static Ints zero_ints() { return both(_mm256_setzero_si256()); }
  OCTALANE_INLINE static Floats zero_floats() { return {{_mm256_setzero_ps(), _mm256_setzero_ps()}}; }
  OCTALANE_INLINE static Ints load_ints(const void* from) {
    const auto* at = static_cast<const __m256i*>(from);
    return {{_mm256_load_si256(at), _mm256_load_si256(at + 1)}};
  }
  OCTALANE_INLINE static Floats load_floats(const float* from) {
    return {{_mm256_load_ps(from), _mm256_load_ps(from + 8)}};
  }
  OCTALANE_INLINE static void store(void* to, const Ints& value) {
    auto* at = static_cast<__m256i*>(to);
    _mm256_store_si256(at, value.v[0]);
    _mm256_store_si256(at + 1, value.v[1]);
  }
  OCTALANE_INLINE static void store(float* to, const Floats& value) {
    _mm256_store_ps(to, value.v[0]);
    _mm256_store_ps(to + 8, value.v[1]);
  }

  OCTALANE_INLINE static Ints all_i32(const void* from) {
    int32_t value;
    __builtin_memcpy(&value, from, sizeof value);
    return both(_mm256_set1_epi32(value));
  }
  OCTALANE_INLINE static Floats all_f32(const void* from) {
    const __m256 value = _mm256_broadcast_ss(static_cast<const float*>(from));
    return {{value, value}};
  }
  OCTALANE_INLINE static Ints token_quad(const void* from) {
    return leaves_out(Ablation::no_activation_load) ? both(avx2::any_bytes()) : all_i32(from);
  }

  OCTALANE_INLINE static Ints dot(const Ints& sum, const Ints& w, const Ints& x) {
    return {{_mm256_dpbusd_avx_epi32(sum.v[0], w.v[0], x.v[0]), _mm256_dpbusd_avx_epi32(sum.v[1], w.v[1], x.v[1])}};
  }
  OCTALANE_INLINE static Ints pair_dot(const Ints& sum, const Ints& a, const Ints& b) {
    return {{_mm256_dpwssd_avx_epi32(sum.v[0], a.v[0], b.v[0]), _mm256_dpwssd_avx_epi32(sum.v[1], a.v[1], b.v[1])}};
  }
  OCTALANE_INLINE static Ints times(const Ints& a, const Ints& b) {
    return {{_mm256_mullo_epi32(a.v[0], b.v[0]), _mm256_mullo_epi32(a.v[1], b.v[1])}};
  }
  OCTALANE_INLINE static Ints plus(const Ints& a, const Ints& b) {
    return {{_mm256_add_epi32(a.v[0], b.v[0]), _mm256_add_epi32(a.v[1], b.v[1])}};
  }
  OCTALANE_INLINE static Floats to_floats(const Ints& a) {
    return {{_mm256_cvtepi32_ps(a.v[0]), _mm256_cvtepi32_ps(a.v[1])}};
  }
  OCTALANE_INLINE static Floats times(const Floats& a, const Floats& b) { return avx2::times(a, b); }
  OCTALANE_INLINE static Floats fma(const Floats& a, const Floats& b, const Floats& c) {
    return {{_mm256_fmadd_ps(a.v[0], b.v[0], c.v[0]), _mm256_fmadd_ps(a.v[1], b.v[1], c.v[1])}};
  }
  OCTALANE_INLINE static Floats negate(const Floats& a) { return avx2::negate(a); }
  OCTALANE_INLINE static void keep(const Ints& value) {
    avx2::keep(value.v[0]);
    avx2::keep(value.v[1]);
  }

  template <int Bits, int Quad>
  OCTALANE_INLINE static Ints unpack(const std::byte* block) {
    return {{avx2::unpack_quad<Bits, Quad>(block, 0), avx2::unpack_quad<Bits, Quad>(block, 1)}};
  }
  OCTALANE_INLINE static Table table(const CodeSpec& code) { return avx2::level_table(code, 128); }
  OCTALANE_INLINE static Ints look_up(const Table& table, const Ints& codes) {
    return {{_mm256_shuffle_epi8(table, codes.v[0]), _mm256_shuffle_epi8(table, codes.v[1])}};
  }

  OCTALANE_INLINE static Scales group_scales(const PackedView& w, const std::byte* record, int g) {
    return avx2::group_scales(w, record, g);
  }
  OCTALANE_INLINE static Scales super_scales(const PackedView& w, const std::byte* record) {
    const ScaleSpec& s = w.spec.scale;
    Scales scales{avx2::load_scales(s.type, record + w.record.scale, 0), zero_floats()};
    if (s.has_bias) scales.bias = avx2::load_scales(s.type, record + w.record.bias, 0);
    return scales;
  }
  OCTALANE_INLINE static Ints sub_scale(const PackedView& w, const std::byte* record, int g) {
    return load_16_s8(record + w.record.sub_scale + g * avx2::kRows);
  }
  OCTALANE_INLINE static Ints min_pair(const PackedView& w, const std::byte* record, int p) {
    const std::byte* const from = record + w.record.sub_min + 2 * p * avx2::kRows;
    Ints pair = load_16_s8(from);
    const Ints second = 2 * p + 1 < w.record.groups ? load_16_s8(from + avx2::kRows) : zero_ints();
    for (int h = 0; h < 2; ++h) pair.v[h] = _mm256_blend_epi16(pair.v[h], _mm256_slli_epi32(second.v[h], 16), 0xAA);
    return pair;
  }

  OCTALANE_INLINE static Rows rows(const PackedView& w, int64_t tile) { return {w.rows, tile}; }
  OCTALANE_INLINE static void store_rows(const Rows& rows, float* y, const Floats& value) { rows.store(y, value); }

 private:
  OCTALANE_INLINE static Ints load_16_s8(const std::byte* from) {
    const auto half = [from](int h) OCTALANE_INLINE_LAMBDA {
      return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(from + 8 * h)));
    };
    return {{half(0), half(1)}};
  }
};

}  // namespace
}  // namespace octalane::avxvnni
