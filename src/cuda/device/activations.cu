// Activations on their way to a lane: rounded, or quantized as the scalar kernels do, to the bit. A block has one
// token.
#include "cuda/activation_args.h"
#include "cuda/device/instructions.cuh"
#include "cuda/records.h"

namespace octalane::cuda {

enum class Form { bf16, f16, s8, e4m3 };

struct F32Input {
  using Type = float;
};
struct Bf16Input {
  using Type = uint16_t;
};

inline constexpr uint32_t kInfinity = 0x7f800000, kQuietNan = 0x7fc00000;

__device__ __forceinline__ float as_f32(float value) { return value; }
__device__ __forceinline__ float as_f32(uint16_t bits) { return __uint_as_float(uint32_t{bits} << 16); }

/// The columns of one unit; 0 past the last.
template <class Input>
__device__ __forceinline__ void load_unit(const typename Input::Type* row, int column, int cols, bool aligned,
                                          float (&v)[kActivationUnit]) {
  if (aligned && column + kActivationUnit <= cols) {
    const auto* from = reinterpret_cast<const uint4*>(row + column);
    if constexpr (sizeof(row[0]) == 4) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const uint4 w = from[i];
        v[4 * i] = __uint_as_float(w.x), v[4 * i + 1] = __uint_as_float(w.y);
        v[4 * i + 2] = __uint_as_float(w.z), v[4 * i + 3] = __uint_as_float(w.w);
      }
    } else {
      const uint4 w = from[0];
      const uint32_t words[4] = {w.x, w.y, w.z, w.w};
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        v[2 * i] = __uint_as_float(words[i] << 16), v[2 * i + 1] = __uint_as_float(words[i] & 0xffff0000u);
      }
    }
    return;
  }
#pragma unroll
  for (int i = 0; i < kActivationUnit; ++i) v[i] = column + i < cols ? as_f32(row[column + i]) : 0.0f;
}

/// The largest magnitude, as bits: those of whatever is not finite are the largest.
__device__ __forceinline__ uint32_t largest(const float (&v)[kActivationUnit]) {
  uint32_t amax = 0;
#pragma unroll
  for (float x : v) amax = max(amax, __float_as_uint(x) & 0x7fffffffu);
  return amax;
}

/// A scale, and what values are multiplied by; 0 where there is nothing to code.
struct Quantizer {
  float scale, inverse;
};

__device__ __forceinline__ Quantizer s8_quantizer(uint32_t amax) {
  if (amax >= kInfinity) return {__uint_as_float(kQuietNan), 0};
  const float inverse = __fdiv_rn(127.0f, __uint_as_float(amax));
  if (__float_as_uint(inverse) >= kInfinity) return {0, 0};
  return {__fdiv_rn(__uint_as_float(amax), 127.0f), inverse};
}

/// 2^ceil(log2(amax / 448)); 448 = 1.75 * 2^8.
__device__ __forceinline__ Quantizer e4m3_quantizer(uint32_t amax) {
  if (amax >= kInfinity) return {__uint_as_float(kQuietNan), 0};
  const int exponent = static_cast<int>(amax >> 23) - ((amax & 0x7fffffu) <= 0x600000u ? 8 : 7);
  if (exponent < 1) return {0, 0};
  return {__uint_as_float(exponent << 23), __uint_as_float((254 - exponent) << 23)};
}

/// Four int8; what is too large to be one is not finite or has an inverse of 0. Adding 1.5 * 2^23 rounds to an integer,
/// to nearest-even, and leaves it in the low bits.
__device__ __forceinline__ uint32_t pack_s8(const float* v, float inverse) {
  uint32_t code[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) code[i] = __float_as_uint(__fadd_rn(__fmul_rn(v[i], inverse), 12582912.0f));
  return __byte_perm(__byte_perm(code[0], code[1], 0x0040), __byte_perm(code[2], code[3], 0x0040), 0x5410);
}

__device__ __forceinline__ uint32_t round_bf16(float value) {
  const uint32_t bits = __float_as_uint(value);
  if ((bits & 0x7fffffffu) > kInfinity) return bits >> 16 | 0x40u;
  return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

/// A unit as bfloat16 in the order of bf16_position. Of 16 columns words 0 to 3 lie with one thread after the exchange,
/// 4 to 7 with its neighbour.
__device__ __forceinline__ void store_bf16(const ActivationArgs& args, int column, const float (&v)[kActivationUnit]) {
  uint32_t words[4];
#pragma unroll
  for (int i = 0; i < 4; ++i) words[i] = round_bf16(v[2 * i]) | round_bf16(v[2 * i + 1]) << 16;
  // Columns 0-1 and 4-5 are words 0, 1 of the first thread, 2, 3 of the second; the others words 4, 5 and 6, 7.
  const bool second = threadIdx.x & 1;
  const uint32_t low = __shfl_xor_sync(~0u, second ? words[0] : words[1], 1);
  const uint32_t high = __shfl_xor_sync(~0u, second ? words[2] : words[3], 1);
  if (column >= args.padded_cols) return;
  auto* to = static_cast<uint16_t*>(args.staged) + int64_t{blockIdx.x} * args.padded_cols + column;
  *reinterpret_cast<uint4*>(to) = second ? uint4{low, high, words[1], words[3]} : uint4{words[0], words[2], low, high};
}

/// Where the scale or sum of this block's token lies, of a group.
__device__ __forceinline__ int64_t scale_index(const ActivationArgs& args, int group) {
  return int64_t{group} * args.padded_tokens + blockIdx.x;
}

/// The sum of 32 codes from `column` on, as a multiple of 32 and a rest; ties go away from zero. The last block of 256
/// columns is whole.
__device__ __forceinline__ void store_minima(const ActivationArgs& args, int column, int sum) {
  if (column >= (args.padded_cols + kSuperCols - 1) / kSuperCols * kSuperCols) return;
  const int whole = (abs(sum) + 16) / 32 * 32, signed_whole = sum < 0 ? -whole : whole;
  uint16_t* const block = args.minima + int64_t{column / kSuperCols} * args.padded_tokens * 16;
  const int g = column % kSuperCols / 32;
  // Both are exact: at most eight significant bits.
  block[minima_position(blockIdx.x, g, false)] = __float_as_uint(static_cast<float>(signed_whole)) >> 16;
  block[minima_position(blockIdx.x, g, true)] = __float_as_uint(static_cast<float>(sum - signed_whole)) >> 16;
}

/// A unit as codes, and its part of the sums.
template <Form kForm>
__device__ __forceinline__ void store_codes(const ActivationArgs& args, int column, const float (&v)[kActivationUnit],
                                            float inverse) {
  const bool inside = column < args.padded_cols;
  uint2 codes{0, 0};
  if (inverse != 0) {  // what is not finite is not multiplied
    if constexpr (kForm == Form::s8) {
      codes = {pack_s8(v, inverse), pack_s8(v + 4, inverse)};
    } else {
#if __CUDA_ARCH__ >= 890
      uint32_t pair[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) pair[i] = pack_e4m3(__fmul_rn(v[2 * i], inverse), __fmul_rn(v[2 * i + 1], inverse));
      codes = {pair[0] | pair[1] << 16, pair[2] | pair[3] << 16};
#endif
    }
  }
  if (inside) {
    *reinterpret_cast<uint2*>(static_cast<uint8_t*>(args.staged) + int64_t{blockIdx.x} * args.padded_cols + column) =
        codes;
  }
  if constexpr (kForm == Form::s8) {
    if (args.sums == nullptr && args.minima == nullptr) return;
    int sum = __dp4a(static_cast<int>(codes.x), 0x01010101, __dp4a(static_cast<int>(codes.y), 0x01010101, 0));
    for (int lanes = 1; lanes < args.sum_group / kActivationUnit; lanes *= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
    if ((column & (args.sum_group - 1)) != 0) return;
    if (args.minima != nullptr)
      store_minima(args, column, sum);
    else if (inside)
      args.sums[scale_index(args, column / args.sum_group)] = static_cast<float>(sum);
  }
}

__device__ __forceinline__ float power_of_two(int exponent) { return __int_as_float((exponent + 127) << 23); }

/// A unit as bfloat16 values times 2^(kF16Exponent - exponent), in binary16 in the order of f16_position, and its part
/// of the sums.
__device__ __forceinline__ void store_f16(const ActivationArgs& args, int column, const float (&v)[kActivationUnit],
                                          int exponent) {
  const auto code = static_cast<Code>(args.code);
  const float scale = power_of_two(kF16Exponent - exponent);
  const int second = column / 16 % 2;
  const float more = second ? f16_second_scale(code) : 1.0f;
  float scaled[kActivationUnit], sum = 0;
#pragma unroll
  for (int i = 0; i < kActivationUnit; ++i) scaled[i] = __uint_as_float(round_bf16(v[i]) << 16) * scale;
#pragma unroll
  for (int i = 0; i < kActivationUnit; i += 2) sum += scaled[i] + scaled[i + 1];
  for (int lanes = 1; lanes < args.sum_group / kActivationUnit; lanes *= 2) sum += __shfl_xor_sync(~0u, sum, lanes);
  if (column >= args.padded_cols) return;
  if ((column & (args.sum_group - 1)) == 0)
    args.sums[(int64_t{blockIdx.x} * args.padded_cols + column) / args.sum_group] = sum * kF16CodeScale;
  auto* const to = static_cast<uint16_t*>(args.staged) + int64_t{blockIdx.x} * args.padded_cols + column / 32 * 32;
#pragma unroll
  for (int quad = 0; quad < 2; ++quad) {
    const float* const from = scaled + 4 * quad;
    *reinterpret_cast<uint2*>(to + f16_position(column % 32 + 4 * quad)) = {pack_f16(from[0] * more, from[2] * more),
                                                                            pack_f16(from[1] * more, from[3] * more)};
  }
}

/// The largest of all threads.
__device__ __forceinline__ uint32_t largest_of_block(uint32_t amax) {
  __shared__ uint32_t warps[32];
  amax = __reduce_max_sync(~0u, amax);
  if (threadIdx.x % 32 == 0) warps[threadIdx.x / 32] = amax;
  __syncthreads();
  const uint32_t lane = threadIdx.x % 32;
  return __reduce_max_sync(~0u, lane < blockDim.x / 32 ? warps[lane] : 0);
}

/// A token that is no row of x, or past the last: its scales and sums are 0, and where it has codes, they are too.
template <Form kForm>
__device__ __forceinline__ void clear(const ActivationArgs& args, int scale_columns) {
  if (blockIdx.x < static_cast<uint32_t>(args.tokens)) {
    const int sixteens = args.padded_cols / (kForm == Form::bf16 || kForm == Form::f16 ? 8 : 16);
    uint4* const to = static_cast<uint4*>(args.staged) + int64_t{blockIdx.x} * sixteens;
    for (int i = threadIdx.x; i < sixteens; i += blockDim.x) to[i] = uint4{0, 0, 0, 0};
  }
  if (kForm == Form::bf16) return;
  const int scales = (args.padded_cols + scale_columns - 1) / scale_columns;
  for (int g = threadIdx.x; g < scales; g += blockDim.x) args.scales[scale_index(args, g)] = 0;
  if (args.minima != nullptr) {
    for (int column = threadIdx.x * 32; column < args.padded_cols + kSuperCols; column += blockDim.x * 32)
      store_minima(args, column, 0);
  }
  if (args.sums == nullptr) return;
  const int sums = args.padded_cols / args.sum_group;
  for (int g = threadIdx.x; g < sums; g += blockDim.x)
    args.sums[kForm == Form::f16 ? int64_t{blockIdx.x} * sums + g : scale_index(args, g)] = 0;
}

/// The row of x that this block's token is; less than 0: none.
__device__ __forceinline__ int row_of(const ActivationArgs& args) {
  const auto token = static_cast<int>(blockIdx.x);
  if (args.source == nullptr || token >= args.tokens) return token < args.tokens ? token : -1;
  const int row = args.source[token];
  return args.in_place != 0 && row >= 0 ? token : row;
}

/// A token's row, walked in tiles of kActivationUnits units a thread. The lanes of a warp have 256 neighbouring
/// columns, so that a group's largest and its sums are had by exchange.
template <class Input>
class Row {
 public:
  using Unit = float[kActivationUnit];

  __device__ __forceinline__ Row(const ActivationArgs& args, int64_t row)
      : x_(static_cast<const typename Input::Type*>(args.x) + row * args.x_stride),
        cols_(args.cols),
        padded_cols_(args.padded_cols),
        aligned_(reinterpret_cast<uintptr_t>(x_) % 16 == 0) {}

  __device__ __forceinline__ int tiles() const { return (padded_cols_ + tile_columns() - 1) / tile_columns(); }

  __device__ __forceinline__ void load(int tile) {
    each(tile, [&](Unit& unit, int column) { load_unit<Input>(x_, column, cols_, aligned_, unit); });
  }

  /// use(unit, its first column), by whole blocks: columns may lie past the padding.
  template <class Use>
  __device__ __forceinline__ void each(int tile, Use use) {
#pragma unroll
    for (int u = 0; u < kActivationUnits; ++u) {
      const int first = tile * tile_columns() + u * static_cast<int>(blockDim.x) * kActivationUnit;
      if (first >= padded_cols_) break;
      use(units_[u], first + static_cast<int>(threadIdx.x) * kActivationUnit);
    }
  }

 private:
  __device__ __forceinline__ static int tile_columns() {
    return static_cast<int>(blockDim.x) * kActivationUnit * kActivationUnits;
  }

  const typename Input::Type* x_;
  int cols_, padded_cols_;
  bool aligned_;
  Unit units_[kActivationUnits];
};

/// One scale for the row needs two rounds; the second begins with the tile that the first ended with.
template <Form kForm, class Input>
__device__ __forceinline__ void stage_row(const ActivationArgs& args, int from) {
  Row<Input> row(args, from);
  uint32_t amax = 0;
  for (int tile = 0; tile < row.tiles(); ++tile) {
    row.load(tile);
    row.each(tile, [&](const float(&unit)[kActivationUnit], int) { amax = max(amax, largest(unit)); });
  }
  amax = largest_of_block(amax);
  // The exponent of the largest value: what scales the values and undoes it fits fp32 too.
  const int exponent = min(max(static_cast<int>(amax >> 23) - 127, -112), 127);
  const Quantizer quantizer = kForm == Form::s8 ? s8_quantizer(amax) : e4m3_quantizer(amax);
  if (threadIdx.x == 0)
    args.scales[scale_index(args, 0)] = kForm == Form::f16 ? power_of_two(exponent) : quantizer.scale;
  for (int tile = row.tiles() - 1; tile >= 0; --tile) {
    if (tile != row.tiles() - 1) row.load(tile);
    row.each(tile, [&](const float(&unit)[kActivationUnit], int column) {
      if constexpr (kForm == Form::f16)
        store_f16(args, column, unit, exponent);
      else
        store_codes<kForm>(args, column, unit, quantizer.inverse);
    });
  }
}

template <Form kForm, class Input>
__device__ __forceinline__ void stage_groups(const ActivationArgs& args, int from) {
  Row<Input> row(args, from);
  for (int tile = 0; tile < row.tiles(); ++tile) {
    row.load(tile);
    row.each(tile, [&](const float(&unit)[kActivationUnit], int column) {
      if constexpr (kForm == Form::bf16) {
        store_bf16(args, column, unit);
      } else {
        uint32_t amax = largest(unit);
        for (int lanes = 1; lanes < args.group / kActivationUnit; lanes *= 2)
          amax = max(amax, __shfl_xor_sync(~0u, amax, lanes));
        const Quantizer quantizer = s8_quantizer(amax);
        if (column < args.padded_cols && (column & (args.group - 1)) == 0)
          args.scales[scale_index(args, column / args.group)] = quantizer.scale;
        store_codes<kForm>(args, column, unit, quantizer.inverse);
      }
    });
  }
}

template <Form kForm, class Input>
__device__ __forceinline__ void stage(const ActivationArgs& args) {
  let_next_begin();
  wait_for_previous();
  const int row = row_of(args);
  if (row < 0) {
    clear<kForm>(args, kForm == Form::s8 && args.group != 0 ? args.group : args.padded_cols);
  } else if constexpr (kForm == Form::bf16) {
    stage_groups<kForm, Input>(args, row);
  } else if (kForm != Form::s8 || args.group == 0) {
    stage_row<kForm, Input>(args, row);
  } else if constexpr (kForm == Form::s8) {
    stage_groups<kForm, Input>(args, row);
  }
}

#define OCTALANE_STAGE(form)                                                                                           \
  extern "C" __global__ void __launch_bounds__(1024) stage_##form##_f32(const __grid_constant__ ActivationArgs args) { \
    stage<Form::form, F32Input>(args);                                                                                 \
  }                                                                                                                    \
  extern "C" __global__ void __launch_bounds__(1024)                                                                   \
      stage_##form##_bf16(const __grid_constant__ ActivationArgs args) {                                               \
    stage<Form::form, Bf16Input>(args);                                                                                \
  }
OCTALANE_STAGE(bf16)
OCTALANE_STAGE(f16)
OCTALANE_STAGE(s8)
#if __CUDA_ARCH__ >= 890
OCTALANE_STAGE(e4m3)
#endif

}  // namespace octalane::cuda
