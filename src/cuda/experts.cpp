#include "cuda/experts.h"

#include <fmt/format.h>

#include <algorithm>

#include "cuda/address.h"
#include "cuda/code.h"

namespace octalane::cuda {
namespace {

constexpr int64_t kMost = int64_t{1} << 30;  // kernels count in 32 bits
constexpr const char* kCombine[] = {"combine_f32_f32", "combine_f32_bf16", "combine_bf16_f32", "combine_bf16_bf16"};

int64_t aligned(int64_t bytes) { return (bytes + kWorkspaceAlignment - 1) / kWorkspaceAlignment * kWorkspaceAlignment; }

/// Experts that can have been chosen at all.
int64_t most_chosen(const RoutingShape& shape) { return std::min(shape.experts, shape.choices()); }

/// The parts, from address 0 on, and the end of them.
struct Parts {
  Routing routing;
  int64_t bytes = 0;

  explicit Parts(const RoutingShape& shape) {
    routing.shape = shape;
    routing.slots = most_slots(shape);
    routing.source = take(routing.slots * 4);
    routing.slot_of = take(shape.choices() * 4);
    routing.ranges = take(shape.experts * static_cast<int64_t>(sizeof(ExpertRange)));
    routing.counts = take(sizeof(RouteCounts));
    for (int size = 0; size < kTileSizes; ++size) {
      routing.tiles[static_cast<size_t>(size)] =
          take(most_tiles(shape, tokens_of_tile(size)) * static_cast<int64_t>(sizeof(ExpertTile)));
    }
  }

 private:
  Address take(int64_t wanted) {
    const auto at = static_cast<Address>(bytes);
    bytes += aligned(wanted);
    return at;
  }
};

Status check_side(const char* what, const Output& side, int64_t rows) {
  if (side.stride < rows) {
    return fail("cuda: experts: wanted {} with a stride of at least {}, got {}", what, rows, side.stride);
  }
  const unsigned bytes = side.f32 ? 4 : 2;
  if (side.address % bytes == 0) return {};
  return fail("cuda: experts: wanted {} at a multiple of {} bytes, got {:#x}", what, bytes, side.address);
}

}  // namespace

int64_t most_slots(const RoutingShape& shape) {
  return (shape.choices() + most_chosen(shape) * (kSlotUnit - 1)) / kSlotUnit * kSlotUnit;
}

int64_t most_tiles(const RoutingShape& shape, int64_t tile_tokens) {
  return (shape.choices() + most_chosen(shape) * (tile_tokens - 1)) / tile_tokens;
}

int64_t routing_bytes(const RoutingShape& shape) { return Parts(shape).bytes; }

ExpertTiles Routing::tiles_of(int tile_tokens) const {
  for (int size = 0; size < kTileSizes; ++size) {
    if (tokens_of_tile(size) != tile_tokens) continue;
    const auto count = counts + static_cast<Address>(size) * sizeof(int32_t);  // RouteCounts::tiles comes first
    return {tiles[static_cast<size_t>(size)], count, most_tiles(shape, tile_tokens), tile_tokens};
  }
  return {};
}

Expected<Routing> lay_out(const RoutingShape& shape, const Workspace& workspace) {
  if (shape.experts < 1 || shape.experts > kMostExperts) {
    return fail("cuda: experts: wanted 1 to {} experts, got {}", kMostExperts, shape.experts);
  }
  if (shape.tokens < 0 || shape.top_k < 1 || shape.tokens > kMost || shape.top_k > kMost || shape.choices() > kMost) {
    return fail("cuda: experts: wanted up to {} choices, got {} x {}", kMost, shape.tokens, shape.top_k);
  }
  if (workspace.address % kWorkspaceAlignment != 0) {
    return fail("cuda: experts: wanted a workspace at a multiple of {} bytes, got {:#x}", kWorkspaceAlignment,
                workspace.address);
  }
  Parts parts(shape);
  if (workspace.bytes < parts.bytes) {
    return fail("cuda: experts: wanted a workspace of {} bytes for {} x {} choices of {} experts, got {}", parts.bytes,
                shape.tokens, shape.top_k, shape.experts, workspace.bytes);
  }
  Routing& routing = parts.routing;
  for (Address* part : {&routing.source, &routing.slot_of, &routing.ranges, &routing.counts}) {
    *part += workspace.address;
  }
  for (Address& part : routing.tiles) part += workspace.address;
  return routing;
}

const GemmKernel* choose_expert_kernel(const Records& weights, StagedType staged, const RoutingShape& shape) {
  const int64_t chosen = std::max<int64_t>(1, most_chosen(shape)), tokens = (shape.choices() + chosen - 1) / chosen;
  const GemmKernel* best = nullptr;
  for (const GemmKernel& kernel : gemm_kernels()) {
    if (kernel.by_mma() || kernel.staged != staged || !why_not(kernel, weights).empty()) continue;
    const bool better =
        best == nullptr || (best->tokens < tokens ? kernel.tokens > best->tokens
                                                  : kernel.tokens < best->tokens && kernel.tokens >= tokens);
    if (better) best = &kernel;
  }
  return best;
}

Expected<ExpertRouter> ExpertRouter::load(const Session& session) {
  if (experts_code().empty()) return fail("cuda: this build has no device code: it was made without nvcc");
  Expected<Module> module = session.load_module(experts_code());
  if (!module) return fail_with(module);
  ExpertRouter router(session, std::move(*module));
  const Expected<FunctionHandle> route = router.module_.find("route", route_shared_bytes(kMostExperts));
  if (!route) return fail_with(route);
  router.route_ = *route;
  for (size_t i = 0; i < router.combine_.size(); ++i) {
    const Expected<FunctionHandle> combine = router.module_.find(kCombine[i]);
    if (!combine) return fail_with(combine);
    router.combine_[i] = *combine;
  }
  return router;
}

Expected<Routing> ExpertRouter::route(Address choices, const RoutingShape& shape, const Workspace& workspace,
                                      const Stream& stream) const {
  Expected<Routing> laid_out = lay_out(shape, workspace);
  if (!laid_out) return laid_out;
  const Routing& routing = *laid_out;
  if (choices % 4 != 0) {
    return fail("cuda: experts: wanted choices at a multiple of 4 bytes, got {:#x}", choices);
  }
  RouteArgs args{.expert = pointer<const int32_t>(choices),
                 .source = pointer<int32_t>(routing.source),
                 .slot_of = pointer<int32_t>(routing.slot_of),
                 .ranges = pointer<ExpertRange>(routing.ranges),
                 .counts = pointer<RouteCounts>(routing.counts),
                 .choices = static_cast<int32_t>(shape.choices()),
                 .top_k = static_cast<int32_t>(shape.top_k),
                 .experts = static_cast<int32_t>(shape.experts),
                 .slots = static_cast<int32_t>(routing.slots)};
  for (size_t size = 0; size < kTileSizes; ++size) args.tiles[size] = pointer<ExpertTile>(routing.tiles[size]);
  const Grid grid{.threads = kRouteThreads, .shared_bytes = route_shared_bytes(args.experts)};
  if (const Status s = session_->enqueue(route_, grid, stream, args); !s) return fail_with(s);
  return laid_out;
}

Status ExpertRouter::combine(const Routing& routing, const Output& x, Address weights, int64_t rows, const Output& y,
                             const Stream& stream) const {
  if (const Status sound = check_side("outputs of experts", x, rows); !sound) return sound;
  if (const Status sound = check_side("an output", y, rows); !sound) return sound;
  if (weights % 4 != 0) return fail("cuda: experts: wanted weights at a multiple of 4 bytes, got {:#x}", weights);
  const RoutingShape& shape = routing.shape;
  const int64_t blocks = shape.tokens * ((rows + kCombineColumns - 1) / kCombineColumns);
  if (rows < 1 || rows > kMost || blocks > kMost) {
    return fail("cuda: experts: wanted 1 to {} rows of {} tokens, got {}", kMost, shape.tokens, rows);
  }
  if (blocks == 0) return {};
  const CombineArgs args{.x = pointer<const void>(x.address),
                         .y = pointer<void>(y.address),
                         .slot_of = pointer<const int32_t>(routing.slot_of),
                         .weight = pointer<const float>(weights),
                         .x_stride = x.stride,
                         .y_stride = y.stride,
                         .top_k = static_cast<int32_t>(shape.top_k),
                         .rows = static_cast<int32_t>(rows)};
  const size_t which = (x.f32 ? 0u : 2u) + (y.f32 ? 0u : 1u);
  return session_->enqueue(combine_[which], {.blocks = static_cast<int>(blocks), .threads = kCombineThreads}, stream,
                           args);
}

}  // namespace octalane::cuda
