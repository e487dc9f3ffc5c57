#include "kernels/vnni/s8_group.h"

namespace octalane::vnni {
namespace {

/// One tile's codes at 8 bits, fp32 scale and bias per group of at least 16 columns.
struct CodePanel {
  alignas(64) int8_t codes[kS8PanelCols / 4][kRows][4];
  alignas(64) float scale[kS8PanelCols / 16][kRows];
  alignas(64) float bias[kS8PanelCols / 16][kRows];
};

/// Serves add_product from a panel.
struct PanelSource {
  const CodePanel* panel;

  template <int Quad>
  OCTALANE_INLINE __m512i quad(int block) const {
    return _mm512_load_si512(panel->codes[block * 8 + Quad]);
  }
  OCTALANE_INLINE GroupScales scales(int g) const {
    return {_mm512_load_ps(panel->scale[g]), _mm512_load_ps(panel->bias[g])};
  }
  OCTALANE_INLINE void prefetch(int, int) const {}
};

/// `count` records of a tile, from `record` on -> the panel.
template <class Stager>
[[gnu::noinline]] void decode_panel(const Stager& stager, const PackedView& w, const std::byte* record, int count,
                                    CodePanel& panel) {
  const int blocks = w.record.cols / kBlockCols, groups = w.record.groups;
  const bool has_bias = w.spec.scale.has_bias;
  int quad = 0, group = 0;
  for (int r = 0; r < count; ++r, record += w.record.bytes) {
    for (int b = 0; b < blocks; ++b, quad += 8) {
      const std::byte* const block = record + b * w.record.block_bytes;
      unroll<8>([&](auto q) OCTALANE_INLINE_LAMBDA {
        _mm512_store_si512(panel.codes[quad + q.value], stager.template quad<q.value>(block));
      });
    }
    for (int g = 0; g < groups; ++g, ++group) {
      const GroupScales scales = group_scales(w, record, g);
      _mm512_store_ps(panel.scale[group], scales.scale);
      if (has_bias) _mm512_store_ps(panel.bias[group], scales.bias);
    }
  }
}

/// Tokens are multiplied in blocks of at most kS8Tokens, and regrouped in chunks of as many blocks as stay in the
/// second-level cache over all columns.
struct Chunk {
  int block_tokens;
  int64_t blocks;

  OCTALANE_INLINE Chunk(ActivationGroups groups, int64_t tokens, int64_t cols) {
    const int64_t all = (tokens + kS8Tokens - 1) / kS8Tokens;
    const int64_t even = (tokens + all - 1) / all;
    block_tokens = even < kLeastS8Tokens ? kLeastS8Tokens : static_cast<int>(even);
    const int64_t fitting = kChunkBytes / TokenStream{groups}.bytes(block_tokens, cols);
    blocks = fitting < kLeastChunkBlocks ? kLeastChunkBlocks : fitting < all ? fitting : all;
  }
  OCTALANE_INLINE int64_t tokens() const { return blocks * block_tokens; }
};

struct Scratch {
  CodePanel* panels;  ///< [kGemmTiles]
  __m512* sums;       ///< [chunk.blocks][kGemmTiles][kS8Tokens], between the panels of a tile
  std::byte* tokens;  ///< [panel][chunk.blocks] token streams

  OCTALANE_INLINE Scratch(std::byte* from, const Chunk& chunk)
      : panels(reinterpret_cast<CodePanel*>(from)),
        sums(reinterpret_cast<__m512*>(panels + kGemmTiles)),
        tokens(reinterpret_cast<std::byte*>(sums + chunk.blocks * kGemmTiles * kS8Tokens)) {}
};

/// A column range of some tiles, decoded: where it stands, and the tokens of the chunk that meet it.
struct Slab {
  int64_t tile;
  int cols;
  bool first, last;  ///< of its tiles
  int64_t token;
  int64_t blocks;
  const std::byte* tokens;
  const std::byte* next[kGemmTiles];  ///< packed weights to decode next, fetched meanwhile
  int64_t next_bytes;                 ///< of each tile
};

/// Fetches a share of what is decoded next.
template <int Tiles>
OCTALANE_INLINE void prefetch_next(const Slab& slab, int64_t block) {
  const int64_t lines = (slab.next_bytes + 64 * slab.blocks - 1) / (64 * slab.blocks);
  for (int i = 0; i < Tiles; ++i) {
    const std::byte* line = slab.next[i] + block * lines * 64;
    for (int64_t j = 0; j < lines; ++j, line += 64) _mm_prefetch(line, _MM_HINT_T0);
  }
}

template <int Tiles, int T>
OCTALANE_INLINE void write_outputs(const MatmulArgs& args, int64_t tile, int64_t token, const __m512 (&y)[Tiles][T]) {
  float* const to = args.y.row(token) + tile * kRows;
  unroll<T>([&](auto m) OCTALANE_INLINE_LAMBDA {
    if (token + m.value >= args.x.rows) return;
    for (int i = 0; i < Tiles; ++i) {
      TileRows(args.w.rows, tile + i).store(to + m.value * args.y.row_stride + i * kRows, y[i][m.value]);
    }
  });
}

/// All tokens of a chunk times one slab. The first slab of its tiles starts from zero, the last one writes y.
template <bool Split, int Tiles, int T>
[[gnu::noinline]] void multiply_slab(const MatmulArgs& args, const Scratch& scratch, const Slab& slab) {
  PanelSource panels[Tiles];
  for (int i = 0; i < Tiles; ++i) panels[i].panel = scratch.panels + i;
  const std::byte* x = slab.tokens;
  __m512* sums = scratch.sums;
  for (int64_t block = 0; block < slab.blocks; ++block, sums += Tiles * T) {
    prefetch_next<Tiles>(slab, block);
    __m512 y[Tiles][T] = {};
    if (!slab.first) {
      unroll<Tiles>([&](auto i) OCTALANE_INLINE_LAMBDA {
        unroll<T>([&](auto m) OCTALANE_INLINE_LAMBDA { y[i.value][m.value] = sums[i.value * T + m.value]; });
      });
    }
    x = add_product<Split, Tiles, T>(panels, slab.cols, args.w.spec.scale, x, y);
    if (slab.last) {
      write_outputs<Tiles, T>(args, slab.tile, slab.token + block * T, y);
    } else {
      unroll<Tiles>([&](auto i) OCTALANE_INLINE_LAMBDA {
        unroll<T>([&](auto m) OCTALANE_INLINE_LAMBDA { sums[i.value * T + m.value] = y[i.value][m.value]; });
      });
    }
  }
}

/// body(Constant<T>) with the tokens of a block.
template <class Body>
OCTALANE_INLINE void with_block_tokens(const Chunk& chunk, const Body& body) {
  switch (chunk.block_tokens) {
    case 4: return body(Constant<4>{});
    case 5: return body(Constant<5>{});
    default: return body(Constant<6>{});
  }
}

template <int Tiles>
OCTALANE_INLINE void multiply_slab(const MatmulArgs& args, const Chunk& chunk, const Scratch& scratch,
                                   const Slab& slab) {
  with_block_tokens(chunk, [&](auto tokens) OCTALANE_INLINE_LAMBDA {
    if (args.w.spec.scale.group < kBlockCols) {
      multiply_slab<true, Tiles, tokens.value>(args, scratch, slab);
    } else {
      multiply_slab<false, Tiles, tokens.value>(args, scratch, slab);
    }
  });
}

/// The product of the tokens of a chunk, from `token` on, with Tiles tiles: each code is decoded once for all of them.
template <int Tiles, class Stager>
OCTALANE_INLINE void multiply_tiles(const MatmulArgs& args, const Stager& stager, const Chunk& chunk, int64_t token,
                                    int64_t tile) {
  const Scratch scratch(args.scratch, chunk);
  const int record_cols = args.w.record.cols;
  const int records_per_panel = kS8PanelCols / record_cols;
  const int64_t tokens_left = args.x.rows - token < chunk.tokens() ? args.x.rows - token : chunk.tokens();
  Slab slab{.tile = tile,
            .cols = 0,
            .first = true,
            .last = false,
            .token = token,
            .blocks = (tokens_left + chunk.block_tokens - 1) / chunk.block_tokens,
            .tokens = scratch.tokens,
            .next = {},
            .next_bytes = 0};
  for (int64_t record = 0; record < args.w.records; record += records_per_panel) {
    const int64_t left = args.w.records - record;
    const int count = left < records_per_panel ? static_cast<int>(left) : records_per_panel;
    slab.cols = count * record_cols;
    slab.first = record == 0;
    slab.last = count == left;
    slab.next_bytes = int64_t{count} * args.w.record.bytes;
    for (int i = 0; i < Tiles; ++i) {
      decode_panel(stager, args.w, args.w.at(tile + i, record), count, scratch.panels[i]);
      slab.next[i] = slab.last ? args.w.at(tile + Tiles + i, 0) : args.w.at(tile + i, record + count);
    }
    multiply_slab<Tiles>(args, chunk, scratch, slab);
    slab.tokens += chunk.blocks * TokenStream{args.x.groups}.bytes(chunk.block_tokens, slab.cols);
  }
}

/// Regroups the tokens of a chunk, from `token` on.
void write_chunk(const MatmulArgs& args, const Chunk& chunk, int64_t token, int fold) {
  const int64_t cols = args.w.padded_cols();
  const int64_t panel_cols = kS8PanelCols / args.w.record.cols * args.w.record.cols;
  std::byte* to = Scratch(args.scratch, chunk).tokens;
  with_block_tokens(chunk, [&](auto tokens) OCTALANE_INLINE_LAMBDA {
    for (int64_t column = 0; column < cols; column += panel_cols) {
      const int64_t count = cols - column < panel_cols ? cols - column : panel_cols;
      for (int64_t block = 0; block < chunk.blocks; ++block) {
        const int64_t m = token + block * tokens.value;
        if (m < args.x.rows) write_tokens<tokens.value>(args.x, m, column, count, fold, to);
        to += TokenStream{args.x.groups}.bytes(tokens.value, count);
      }
    }
  });
}

}  // namespace

/// Chunks of tokens outside, tiles inside: a chunk stays in the second-level cache while the weights stream by.
void s8_group_gemm(const MatmulArgs& args) {
  if (args.x.rows == 0) return;
  with_stager(args.w, [&](const auto& stager) {
    const Chunk chunk(args.x.groups, args.x.rows, args.w.padded_cols());
    for (int64_t token = 0; token < args.x.rows; token += chunk.tokens()) {
      write_chunk(args, chunk, token, stager.fold());
      int64_t tile = args.tile_begin;
      for (; tile + kGemmTiles <= args.tile_end; tile += kGemmTiles) {
        multiply_tiles<kGemmTiles>(args, stager, chunk, token, tile);
      }
      if (tile < args.tile_end) multiply_tiles<1>(args, stager, chunk, token, tile);
    }
  });
}

int64_t s8_group_gemm_scratch(const Problem& problem) {
  const WeightSpec& w = problem.weights;
  const ActivationGroups groups = token_groups(w.scale);
  const int64_t cols = padded_cols(w, problem.cols);
  const Chunk chunk(groups, problem.tokens > 0 ? problem.tokens : 1, cols);
  return kGemmTiles * static_cast<int64_t>(sizeof(CodePanel)) +
         chunk.blocks * (kGemmTiles * kS8Tokens * static_cast<int64_t>(sizeof(__m512)) +
                         TokenStream{groups}.bytes(chunk.block_tokens, cols));
}

}  // namespace octalane::vnni
