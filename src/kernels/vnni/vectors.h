// What the loops of kernels/tiles/ ask for, see there: one vector for the sixteen rows of a tile.
#pragma once

#include "kernels/vnni/unpack.h"

namespace octalane::vnni {
namespace {

struct Vectors {
  using Ints = __m512i;
  using Floats = __m512;
  using Table = __m512i;
  using Scales = GroupScales;
  using Rows = TileRows;
  static constexpr int kTiles = kGemmTiles, kS8Tokens = vnni::kS8Tokens, kLeastS8Tokens = vnni::kLeastS8Tokens;
  static constexpr int kS8PanelCols = vnni::kS8PanelCols, kGemvTokens = vnni::kGemvTokens,
                       kGemvBlocks = vnni::kGemvBlocks;

  OCTALANE_INLINE static Ints zero_ints() { return _mm512_setzero_si512(); }
  OCTALANE_INLINE static Floats zero_floats() { return _mm512_setzero_ps(); }
  OCTALANE_INLINE static Ints load_ints(const void* from) { return _mm512_load_si512(from); }
  OCTALANE_INLINE static Floats load_floats(const float* from) { return _mm512_load_ps(from); }
  OCTALANE_INLINE static void store(void* to, Ints value) { _mm512_store_si512(to, value); }
  OCTALANE_INLINE static void store(float* to, Floats value) { _mm512_store_ps(to, value); }

  OCTALANE_INLINE static Ints all_i32(const void* from) { return broadcast_i32(from); }
  OCTALANE_INLINE static Floats all_f32(const void* from) { return broadcast_f32(from); }
  OCTALANE_INLINE static Ints token_quad(const void* from) { return broadcast_token_quad(from); }

  OCTALANE_INLINE static Ints dot(Ints sum, Ints w, Ints x) { return _mm512_dpbusd_epi32(sum, w, x); }
  OCTALANE_INLINE static Ints pair_dot(Ints sum, Ints a, Ints b) { return _mm512_dpwssd_epi32(sum, a, b); }
  OCTALANE_INLINE static Ints times(Ints a, Ints b) { return _mm512_mullo_epi32(a, b); }
  OCTALANE_INLINE static Ints plus(Ints a, Ints b) { return _mm512_add_epi32(a, b); }
  OCTALANE_INLINE static Floats to_floats(Ints a) { return _mm512_cvtepi32_ps(a); }
  OCTALANE_INLINE static Floats times(Floats a, Floats b) { return _mm512_mul_ps(a, b); }
  OCTALANE_INLINE static Floats fma(Floats a, Floats b, Floats c) { return _mm512_fmadd_ps(a, b, c); }
  OCTALANE_INLINE static Floats negate(Floats a) { return vnni::negate(a); }
  OCTALANE_INLINE static void keep(Ints value) { vnni::keep(value); }

  template <int Bits, int Quad>
  OCTALANE_INLINE static Ints unpack(const std::byte* block) {
    return unpack_quad<Bits, Quad>(block);
  }
  OCTALANE_INLINE static Table table(const CodeSpec& code) { return level_table(code); }
  OCTALANE_INLINE static Ints look_up(Table table, Ints codes) { return _mm512_shuffle_epi8(table, codes); }

  OCTALANE_INLINE static Scales group_scales(const PackedView& w, const std::byte* record, int g) {
    return vnni::group_scales(w, record, g);
  }
  OCTALANE_INLINE static Scales super_scales(const PackedView& w, const std::byte* record) {
    const ScaleSpec& s = w.spec.scale;
    Scales scales{load_scales(s.type, record + w.record.scale, 0), _mm512_setzero_ps()};
    if (s.has_bias) scales.bias = load_scales(s.type, record + w.record.bias, 0);
    return scales;
  }
  OCTALANE_INLINE static Ints sub_scale(const PackedView& w, const std::byte* record, int g) {
    return _mm512_cvtepi8_epi32(load_quarter(record + w.record.sub_scale + g * kRows));
  }
  OCTALANE_INLINE static Ints min_pair(const PackedView& w, const std::byte* record, int p) {
    const std::byte* const from = record + w.record.sub_min + 2 * p * kRows;
    const __m512i first = _mm512_cvtepi8_epi32(load_quarter(from));
    if (2 * p + 1 == w.record.groups) return _mm512_and_si512(first, _mm512_set1_epi32(0xFFFF));
    const __m512i second = _mm512_slli_epi32(_mm512_cvtepi8_epi32(load_quarter(from + kRows)), 16);
    return _mm512_mask_blend_epi16(0xAAAAAAAA, first, second);
  }

  OCTALANE_INLINE static Rows rows(const PackedView& w, int64_t tile) { return {w.rows, tile}; }
  OCTALANE_INLINE static void store_rows(const Rows& rows, float* y, Floats value) { rows.store(y, value); }
};

}  // namespace
}  // namespace octalane::vnni
