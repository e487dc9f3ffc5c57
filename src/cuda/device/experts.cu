// Tokens on their way to experts and back: which slot each choice of a token gets, and the weighted sum of what the
// experts made of it. Nothing depends on the order in which threads come by.
#include "cuda/device/instructions.cuh"
#include "cuda/experts_args.h"

namespace octalane::cuda {

/// What an expert with so many choices takes: slots (0), or entries of table `what` - 1.
__device__ __forceinline__ int taken(int what, int choices) {
  const int unit = what == 0 ? kSlotUnit : tokens_of_tile(what - 1), units = (choices + unit - 1) / unit;
  return what == 0 ? units * kSlotUnit : units;
}

/// Sums of what the experts before each take, by one warp; returns that of all.
__device__ __forceinline__ int add_up(int what, int experts, const int32_t* choices, int32_t* starts) {
  const int lane = threadIdx.x % 32, part = (experts + 31) / 32;
  const int first = min(lane * part, experts), last = min(first + part, experts);
  int sum = 0;
  for (int e = first; e < last; ++e) sum += taken(what, choices[e]);
  int before = sum;
#pragma unroll
  for (int distance = 1; distance < 32; distance *= 2) {
    const int other = __shfl_up_sync(~0u, before, distance);
    if (lane >= distance) before += other;
  }
  const int all = __shfl_sync(~0u, before, 31);
  before -= sum;
  for (int e = first; e < last; ++e) {
    starts[e] = before;
    before += taken(what, choices[e]);
  }
  return all;
}

/// Every warp has a part of the choices, in order: it counts them by expert, learns how many of each lie in the parts
/// before its own, and then gives slots to its own in their order.
extern "C" __global__ void __launch_bounds__(kRouteThreads) route(const __grid_constant__ RouteArgs args) {
  extern __shared__ int32_t memory[];
  __shared__ int left_out;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, experts = args.experts;
  int32_t* const mine = memory + warp * experts;
  int32_t* const choices = memory + kRouteWarps * experts;
  int32_t* const starts = choices + experts;                             // [1 + kTileSizes][experts]
  const int steps = (args.choices + kRouteThreads - 1) / kRouteThreads;  // of a warp, 32 choices each
  const int begin = min(warp * steps * 32, args.choices), end = min(begin + steps * 32, args.choices);

  if (threadIdx.x == 0) left_out = 0;
  for (int e = lane; e < experts; e += 32) mine[e] = 0;
  for (int i = threadIdx.x; i < args.slots; i += kRouteThreads) args.source[i] = -1;
  __syncthreads();
  int none = 0;
#pragma unroll 4
  for (int i = begin + lane; i < end; i += 32) {
    const int e = __ldg(args.expert + i);
    if (e >= 0 && e < experts)
      atomicAdd(mine + e, 1);
    else
      ++none;
  }
  if (none > 0) atomicAdd(&left_out, none);
  __syncthreads();

  for (int e = threadIdx.x; e < experts; e += kRouteThreads) {
    int before = 0;
    for (int w = 0; w < kRouteWarps; ++w) {
      const int count = memory[w * experts + e];
      memory[w * experts + e] = before;
      before += count;
    }
    choices[e] = before;
  }
  __syncthreads();
  if (warp <= kTileSizes) {
    const int all = add_up(warp, experts, choices, starts + warp * experts);
    if (lane == 0) (warp == 0 ? args.counts->slots : args.counts->tiles[warp - 1]) = all;
  }
  if (threadIdx.x == kRouteThreads - 1) args.counts->left_out = left_out;
  __syncthreads();

  for (int e = warp; e < experts; e += kRouteWarps) {
    const ExpertRange range{starts[e], starts[e] + choices[e]};
    if (lane == 0) args.ranges[e] = range;
#pragma unroll
    for (int size = 0; size < kTileSizes; ++size) {
      const ExpertTile entry{range.begin, range.end, starts[(size + 1) * experts + e], e};
      const int tiles = taken(size + 1, choices[e]);
      for (int i = lane; i < tiles; i += 32) args.tiles[size][entry.first + i] = entry;
    }
  }

  int next = begin + lane < end ? __ldg(args.expert + begin + lane) : -1;
  for (int first = begin; first < end; first += 32) {
    const int i = first + lane, e = next >= 0 && next < experts ? next : -1;
    next = i + 32 < end ? __ldg(args.expert + i + 32) : -1;
    const uint32_t peers = __match_any_sync(~0u, e);
    const int rank = __popc(peers & ((1u << lane) - 1));
    int slot = -1;
    if (e >= 0) slot = starts[e] + mine[e] + rank;
    __syncwarp();
    if (e >= 0 && rank == 0) mine[e] += __popc(peers);
    __syncwarp();
    if (e >= 0) args.source[slot] = i / args.top_k;
    if (i < end) args.slot_of[i] = slot;
  }
}

struct F32Slots {
  using Type = float;
};
struct Bf16Slots {
  using Type = uint16_t;
};

__device__ __forceinline__ float as_f32(float value) { return value; }
__device__ __forceinline__ float as_f32(uint16_t bits) { return __uint_as_float(uint32_t{bits} << 16); }
__device__ __forceinline__ void store(float* to, float value) { *to = value; }
__device__ __forceinline__ void store(uint16_t* to, float value) {
  *to = static_cast<uint16_t>(pack_bf16(value, 0.0f));
}

/// Four neighbouring columns at once, where their address allows it.
template <class T>
__device__ __forceinline__ bool together(const T* at, int columns) {
  return columns >= 4 && reinterpret_cast<uintptr_t>(at) % (4 * sizeof(T)) == 0;
}
__device__ __forceinline__ void load_four(const float* at, float (&v)[4]) {
  const float4 four = *reinterpret_cast<const float4*>(at);
  v[0] = four.x, v[1] = four.y, v[2] = four.z, v[3] = four.w;
}
__device__ __forceinline__ void load_four(const uint16_t* at, float (&v)[4]) {
  const uint2 four = *reinterpret_cast<const uint2*>(at);
  v[0] = __uint_as_float(four.x << 16), v[1] = __uint_as_float(four.x & 0xffff0000u);
  v[2] = __uint_as_float(four.y << 16), v[3] = __uint_as_float(four.y & 0xffff0000u);
}
__device__ __forceinline__ void store_four(float* at, const float (&v)[4]) {
  *reinterpret_cast<float4*>(at) = float4{v[0], v[1], v[2], v[3]};
}
__device__ __forceinline__ void store_four(uint16_t* at, const float (&v)[4]) {
  *reinterpret_cast<uint2*>(at) = uint2{pack_bf16(v[0], v[1]), pack_bf16(v[2], v[3])};
}

template <class X, class Y>
__device__ __forceinline__ void combine(const CombineArgs& args) {
  const int blocks = (args.rows + kCombineColumns - 1) / kCombineColumns;  // of a token
  const int token = static_cast<int>(blockIdx.x) / blocks;
  const int n = static_cast<int>(blockIdx.x) % blocks * kCombineColumns + static_cast<int>(threadIdx.x) * 4;
  const int columns = args.rows - n;
  if (columns <= 0) return;
  float sum[4] = {0, 0, 0, 0};
  for (int j = 0; j < args.top_k; ++j) {
    const int64_t choice = int64_t{token} * args.top_k + j;
    const int slot = __ldg(args.slot_of + choice);
    if (slot < 0) continue;
    const float weight = __ldg(args.weight + choice);
    const auto* const from = static_cast<const typename X::Type*>(args.x) + slot * args.x_stride + n;
    float v[4] = {0, 0, 0, 0};
    if (together(from, columns)) {
      load_four(from, v);
    } else {
#pragma unroll
      for (int i = 0; i < 4; ++i) v[i] = i < columns ? as_f32(from[i]) : 0.0f;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) sum[i] = fmaf(weight, v[i], sum[i]);
  }
  auto* const to = static_cast<typename Y::Type*>(args.y) + token * args.y_stride + n;
  if (together(to, columns)) {
    store_four(to, sum);
    return;
  }
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    if (i < columns) store(to + i, sum[i]);
  }
}

#define OCTALANE_COMBINE(x, X, y, Y)                                \
  extern "C" __global__ void __launch_bounds__(kCombineThreads)     \
      combine_##x##_##y(const __grid_constant__ CombineArgs args) { \
    combine<X, Y>(args);                                            \
  }
OCTALANE_COMBINE(f32, F32Slots, f32, F32Slots)
OCTALANE_COMBINE(f32, F32Slots, bf16, Bf16Slots)
OCTALANE_COMBINE(bf16, Bf16Slots, f32, F32Slots)
OCTALANE_COMBINE(bf16, Bf16Slots, bf16, Bf16Slots)

}  // namespace octalane::cuda
