// Loops over tiles of sixteen weight rows, for every instruction set whose vectors, one or several together, hold them.
// Included by flagged sources, so everything is inline or local to them. An instruction set brings a struct V:
//   Ints, Floats          sixteen int32 (or sixteen times four bytes), sixteen fp32: one value for each row of a tile
//   Table, Rows           for look_up(); which rows of a tile exist, see store_rows()
//   kTiles                tiles that share a broadcast activation in gemm
//   kS8Tokens, kLeastS8Tokens, kS8PanelCols   of a gemm block, at most and at least; columns decoded at once
//   kGemvTokens, kGemvBlocks   tokens that a gemv multiplies from registers, a power of two; 1 or 2 blocks of them
// and static functions, each for the sixteen rows:
//   zero_ints(), zero_floats(), load_ints(p), load_floats(p), store(p, value)       p is aligned to 64 bytes
//   all_i32(p), all_f32(p), token_quad(p)   the value at p for all rows; four activation codes
//   dot(sum, weights, tokens)               sum + four products of unsigned and signed bytes
//   pair_dot(sum, a, b)                     sum + two products of int16
//   times(a, b), plus(a, b)                 int32
//   to_floats(a), times(a, b), fma(a, b, c), negate(a)     fp32
//   keep(value)                             for ablation builds: nothing takes it
//   unpack<Bits, Quad>(block), table(code), look_up(table, codes)        codes of a quad of columns; levels plus 128
//   group_scales(w, record, g), super_scales(w, record): {scale, bias}   in effect for a group; of a super-group
//   sub_scale(w, record, g), min_pair(w, record, p)                      int32; int16 of groups 2 p and 2 p + 1
//   rows(w, tile), store_rows(rows, y, value)
#pragma once

#include "core/inline.h"

namespace octalane::tiles {

inline constexpr int kRows = 16;

}  // namespace octalane::tiles
