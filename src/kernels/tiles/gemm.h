// The loops of every gemm: chunks of tokens, blocks of tiles, panels of columns, groups of tiles, blocks of tokens.
//
// A panel is decoded once for all tokens of a chunk and stays in the first-level cache. The tokens of a chunk are
// regrouped once; those of one panel stay in the second-level cache while the tiles of a block pass by, and so do the
// sums of that block, from panel to panel. y is written once.
//
// A Lane brings: V (see vectors.h), Panel, kPanelCols, kTokens (of a block, at most), kLeastTokens, Stream and
//   decode(tile record, count, panel)                     `count` records of one tile
//   stream: Stream, its bytes(T, cols)                    of T tokens regrouped
//   write<T>(first token, first column, cols, to)         regroups T tokens, zeros past the last
//   multiply<Tiles, T>(panels, cols, x, next, y) -> end of x   y[Tiles][T] += panels times tokens, fetching what is
//   next
#pragma once

#include "core/ablation.h"
#include "core/packed_view.h"
#include "core/unroll.h"
#include "kernels/kernel.h"
#include "kernels/tiles/prefetch.h"
#include "kernels/tiles/vectors.h"

namespace octalane::tiles {
namespace {

/// Bytes of regrouped tokens that a thread keeps at most, and their number. A product of codebooks stays below 2 MiB
/// with all it needs.
inline constexpr int64_t kMostChunkBytes = 3 << 20;
inline constexpr int64_t kMostCodebookChunkBytes = 7 << 18;
OCTALANE_INLINE constexpr int64_t most_chunk_bytes(const WeightSpec& spec) {
  return spec.code.is_codebook() ? kMostCodebookChunkBytes : kMostChunkBytes;
}
inline constexpr int64_t kMostChunkTokens = 192;
inline constexpr int64_t kBlockGroups = 4;  ///< groups of V::kTiles tiles whose sums are kept

/// How tokens are cut into blocks of equal size, and blocks into chunks.
struct Chunk {
  int tokens_per_block;
  int64_t blocks;  ///< of a chunk

  template <class Lane>
  OCTALANE_INLINE static Chunk of(const typename Lane::Stream& stream, int64_t tokens, int64_t cols,
                                  int64_t most_bytes) {
    const int64_t all = tokens > 0 ? (tokens + Lane::kTokens - 1) / Lane::kTokens : 1;
    const int64_t even = (tokens + all - 1) / all;
    Chunk c;
    c.tokens_per_block = even < Lane::kLeastTokens ? Lane::kLeastTokens : static_cast<int>(even);
    const int64_t bytes = stream.bytes(c.tokens_per_block, cols);
    int64_t most = kMostChunkTokens / c.tokens_per_block;
    if (most * bytes > most_bytes) most = most_bytes / bytes;
    c.blocks = most < 1 ? 1 : most < all ? most : all;
    return c;
  }
  OCTALANE_INLINE int64_t tokens() const { return blocks * tokens_per_block; }
};

template <class Lane>
struct Scratch {
  using Floats = typename Lane::V::Floats;
  static constexpr int kTiles = Lane::V::kTiles;

  typename Lane::Panel* panels;  ///< [kTiles]
  Floats* sums;                  ///< [kBlockGroups][blocks][kTiles][tokens_per_block]
  std::byte* tokens;             ///< [panel][blocks] regrouped tokens

  OCTALANE_INLINE Scratch(std::byte* from, const Chunk& chunk)
      : panels(reinterpret_cast<typename Lane::Panel*>(from)),
        sums(reinterpret_cast<Floats*>(panels + kTiles)),
        tokens(reinterpret_cast<std::byte*>(sums + kBlockGroups * kTiles * chunk.tokens())) {}

  OCTALANE_INLINE static int64_t bytes(const typename Lane::Stream& stream, const WeightSpec& spec, int64_t tokens,
                                       int64_t cols) {
    const Chunk chunk = Chunk::of<Lane>(stream, tokens, cols, most_chunk_bytes(spec));
    return kTiles * static_cast<int64_t>(sizeof(typename Lane::Panel)) +
           kBlockGroups * kTiles * chunk.tokens() * static_cast<int64_t>(sizeof(Floats)) +
           chunk.blocks * stream.bytes(chunk.tokens_per_block, cols);
  }
};

/// One panel of a group of tiles and the tokens of the chunk that meet it.
template <class V>
struct Slab {
  int64_t tile;
  int cols;
  bool first, last;  ///< panel of its tiles: starts from zero, writes y
  int64_t token;
  int64_t blocks;
  const std::byte* tokens;
  typename V::Floats* sums;
  const std::byte* next[V::kTiles];  ///< packed weights to decode next, fetched meanwhile
  int64_t next_bytes;                ///< of each tile
};

/// What block `block` of the tokens fetches of what is decoded next.
template <class V>
OCTALANE_INLINE void take_share(const Slab<V>& slab, int64_t block, NextLines (&next)[V::kTiles]) {
  const int64_t lines = leaves_out(Ablation::no_decode) ? 0 : (slab.next_bytes + 63) / 64;
  const int64_t begin = lines * block / slab.blocks, end = lines * (block + 1) / slab.blocks;
  const int64_t col_blocks = slab.cols > kBlockCols ? slab.cols / kBlockCols : 1;
  for (int i = 0; i < V::kTiles; ++i) {
    next[i] = {slab.next[i] + begin * 64, slab.next[i] + end * 64,
               static_cast<int>((end - begin + col_blocks - 1) / col_blocks)};
  }
}

template <class V, int Tiles, int T>
OCTALANE_INLINE void write_outputs(const MatmulArgs& args, int64_t tile, int64_t token,
                                   const typename V::Floats (&y)[Tiles][T]) {
  float* const to = args.y.row(token) + tile * kRows;
  unroll<T>([&](auto m) OCTALANE_INLINE_LAMBDA {
    if (token + m.value >= args.x.rows) return;
    for (int i = 0; i < Tiles; ++i) {
      V::store_rows(V::rows(args.w, tile + i), to + m.value * args.y.row_stride + i * kRows, y[i][m.value]);
    }
  });
}

/// All tokens of a chunk times one panel of Tiles tiles.
template <int Tiles, int T, class Lane>
[[gnu::noinline]] void multiply_slab(const Lane& lane, const MatmulArgs& args, const typename Lane::Panel* panels,
                                     const Slab<typename Lane::V>& slab) {
  using V = typename Lane::V;
  const std::byte* x = slab.tokens;
  typename V::Floats* sums = slab.sums;
  for (int64_t block = 0; block < slab.blocks; ++block, sums += Tiles * T) {
    NextLines next[V::kTiles];
    take_share(slab, block, next);
    typename V::Floats y[Tiles][T];
    unroll<Tiles>([&](auto i) OCTALANE_INLINE_LAMBDA {
      unroll<T>([&](auto m) OCTALANE_INLINE_LAMBDA {
        y[i.value][m.value] = slab.first ? V::zero_floats() : sums[i.value * T + m.value];
      });
    });
    x = lane.template multiply<Tiles, T>(panels, slab.cols, x, next, y);
    if (slab.last) {
      write_outputs<V, Tiles, T>(args, slab.tile, slab.token + block * T, y);
    } else {
      unroll<Tiles>([&](auto i) OCTALANE_INLINE_LAMBDA {
        unroll<T>([&](auto m) OCTALANE_INLINE_LAMBDA { sums[i.value * T + m.value] = y[i.value][m.value]; });
      });
    }
  }
}

/// body(Constant<T>) for T = tokens of a block, which is in [T, most].
template <int T, int Most, class Body>
OCTALANE_INLINE void with_tokens(int tokens, const Body& body) {
  if constexpr (T < Most) {
    if (tokens != T) return with_tokens<T + 1, Most>(tokens, body);
  }
  body(Constant<T>{});
}

template <class Lane>
class Gemm {
 public:
  OCTALANE_INLINE Gemm(const Lane& lane, const MatmulArgs& args)
      : lane_(lane),
        args_(args),
        cols_(args.w.padded_cols()),
        chunk_(Chunk::of<Lane>(lane.stream, args.x.rows, cols_, most_chunk_bytes(args.w.spec))),
        scratch_(args.scratch, chunk_),
        panel_records_(Lane::kPanelCols / args.w.record.cols) {}

  OCTALANE_INLINE void run() const {
    for (int64_t token = 0; token < args_.x.rows; token += chunk_.tokens()) {
      write_chunk(token);
      constexpr int64_t block_tiles = kBlockGroups * kTiles;
      for (int64_t tile = args_.tile_begin; tile < args_.tile_end; tile += block_tiles) {
        const int64_t end = tile + block_tiles < args_.tile_end ? tile + block_tiles : args_.tile_end;
        multiply_block(token, tile, end);
      }
    }
  }

 private:
  using V = typename Lane::V;
  static constexpr int kTiles = V::kTiles;

  OCTALANE_INLINE int64_t blocks_from(int64_t token) const {
    const int64_t left = args_.x.rows - token < chunk_.tokens() ? args_.x.rows - token : chunk_.tokens();
    return (left + chunk_.tokens_per_block - 1) / chunk_.tokens_per_block;
  }
  OCTALANE_INLINE int64_t slab_bytes(int64_t cols) const {
    return chunk_.blocks * lane_.stream.bytes(chunk_.tokens_per_block, cols);
  }

  OCTALANE_INLINE void write_chunk(int64_t token) const {
    const int64_t panel_cols = panel_records_ * args_.w.record.cols, blocks = blocks_from(token);
    with_tokens<Lane::kLeastTokens, Lane::kTokens>(chunk_.tokens_per_block, [&](auto t) OCTALANE_INLINE_LAMBDA {
      for (int64_t column = 0; column < cols_; column += panel_cols) {
        const int64_t count = cols_ - column < panel_cols ? cols_ - column : panel_cols;
        std::byte* to = scratch_.tokens + slab_bytes(column);
        for (int64_t block = 0; block < blocks; ++block, to += lane_.stream.bytes(t.value, count)) {
          lane_.template write<t.value>(token + block * t.value, column, count, to);
        }
      }
    });
  }

  /// The tokens of a chunk times the tiles [begin, end), at most kBlockGroups groups of them.
  OCTALANE_INLINE void multiply_block(int64_t token, int64_t begin, int64_t end) const {
    const PackedView& w = args_.w;
    Slab<V> slab{.tile = begin,
                 .cols = 0,
                 .first = true,
                 .last = false,
                 .token = token,
                 .blocks = blocks_from(token),
                 .tokens = scratch_.tokens,
                 .sums = scratch_.sums,
                 .next = {},
                 .next_bytes = 0};
    int64_t record = 0;
    do {  // once without columns, for there are zeros to write
      const int64_t left = w.records - record;
      const int count = static_cast<int>(left < panel_records_ ? left : panel_records_);
      slab.cols = count * w.record.cols;
      slab.first = record == 0;
      slab.last = count == left;
      slab.next_bytes = int64_t{count} * w.record.bytes;
      slab.tokens = scratch_.tokens + slab_bytes(record * w.record.cols);
      for (int64_t tile = begin; tile < end; tile += kTiles) {
        const int tiles = end - tile < kTiles ? 1 : kTiles;
        slab.tile = tile;
        slab.sums = scratch_.sums + (tile - begin) * chunk_.tokens();
        const bool last_tiles = tile + kTiles >= end;
        const int64_t next_tile = !last_tiles ? tile + kTiles : slab.last ? end : begin;
        const int64_t next_record = !last_tiles ? record : slab.last ? 0 : record + count;
        for (int i = 0; i < kTiles; ++i) slab.next[i] = w.at(next_tile + i, next_record);
        const bool decodes = decodes_panel(tile == args_.tile_begin && record == 0);
        for (int i = 0; i < tiles && decodes; ++i) lane_.decode(w.at(tile + i, record), count, scratch_.panels[i]);
        multiply(tiles, slab);
      }
      record += panel_records_;
    } while (record < w.records);
  }

  OCTALANE_INLINE void multiply(int tiles, const Slab<V>& slab) const {
    with_tokens<Lane::kLeastTokens, Lane::kTokens>(chunk_.tokens_per_block, [&](auto t) OCTALANE_INLINE_LAMBDA {
      if (tiles == kTiles) {
        multiply_slab<kTiles, t.value>(lane_, args_, scratch_.panels, slab);
      } else {
        multiply_slab<1, t.value>(lane_, args_, scratch_.panels, slab);
      }
    });
  }

  const Lane& lane_;
  const MatmulArgs& args_;
  int64_t cols_;
  Chunk chunk_;
  Scratch<Lane> scratch_;
  int64_t panel_records_;
};

}  // namespace
}  // namespace octalane::tiles
