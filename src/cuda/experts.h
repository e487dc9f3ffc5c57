// Products over experts: a router's choices on the device become slots, in which every expert's tokens lie together;
// one launch multiplies all of them (Products::multiply_experts), and a weighted sum brings them back.
//
//   route -> Staging::stage_gathered (Routing::gather) -> multiply_experts (Routing::tiles_of) -> ... -> combine
//
// Sizes are those of the worst routing, so the same launches serve whatever the router chose: all of it may be captured
// in one graph.
#pragma once

#include <array>

#include "cuda/experts_args.h"
#include "cuda/staging.h"

namespace octalane::cuda {

/// What is routed: choices[tokens][top_k] among `experts`.
struct RoutingShape {
  int64_t tokens = 0, top_k = 1, experts = 1;
  int64_t choices() const { return tokens * top_k; }
};

/// Slots that any routing of this shape takes at most: a choice has one, and each expert that is chosen fills up its
/// last kSlotUnit.
int64_t most_slots(const RoutingShape& shape);

/// Likewise the entries of a table for tiles of so many tokens.
int64_t most_tiles(const RoutingShape& shape, int64_t tile_tokens);

/// Of a workspace for route; a multiple of kWorkspaceAlignment.
int64_t routing_bytes(const RoutingShape& shape);

/// Where route writes.
struct Routing {
  RoutingShape shape;
  int64_t slots = 0;    ///< most_slots
  Address source = 0;   ///< int32 [slots]: the token of a slot, -1 for those that no token has
  Address slot_of = 0;  ///< int32 [tokens][top_k]: the slot of a choice, -1 for an expert that there is not
  Address ranges = 0;   ///< ExpertRange [experts]: an expert's slots; `begin` is a multiple of kSlotUnit
  Address counts = 0;   ///< RouteCounts
  std::array<Address, kTileSizes> tiles{};

  /// For products whose kernel has tiles of so many tokens; of 0 tokens where there is no such table.
  ExpertTiles tiles_of(int tile_tokens) const;
  /// The tokens of slots: rows of what was routed, or (in_place) of what has slots already.
  Gather gather(bool in_place = false) const { return {source, slots, in_place}; }
};

/// The parts of a workspace. Errors: a shape that is not served (no experts, more than kMostExperts, more than 2^30
/// choices), a workspace too small or not aligned.
Expected<Routing> lay_out(const RoutingShape& shape, const Workspace& workspace);

/// The product kernel of a lane, of wgmma, for so many choices: the smallest tile that holds what each expert would get
/// if all got the same, else the largest. Null: none serves the weights.
const GemmKernel* choose_expert_kernel(const Records& weights, StagedType staged, const RoutingShape& shape);

/// The kernels that route.
class ExpertRouter {
 public:
  /// Errors: a build without device code, the driver's.
  static Expected<ExpertRouter> load(const Session& session);

  /// Enqueues; may be captured, the choices being read when it runs. `choices`: int32 [tokens][top_k] on the device.
  /// The choices of an expert keep their order, that of tokens. Experts that there are not get no slot and are counted
  /// (RouteCounts::left_out). Errors: lay_out's, choices not aligned, the driver's.
  Expected<Routing> route(Address choices, const RoutingShape& shape, const Workspace& workspace,
                          const Stream& stream) const;

  /// Enqueues y[token] = sum over j of weights[token][j] * x[slot of choice j], in the order of j: fused multiply-adds
  /// in fp32, from 0; choices without a slot are left out. x[slots][rows], weights fp32 [tokens][top_k]; may be
  /// captured. Errors: strides of less than `rows`, addresses not aligned, the driver's.
  Status combine(const Routing& routing, const Output& x, Address weights, int64_t rows, const Output& y,
                 const Stream& stream) const;

 private:
  ExpertRouter(const Session& session, Module module) : session_(&session), module_(std::move(module)) {}
  const Session* session_;
  Module module_;
  FunctionHandle route_ = nullptr;
  std::array<FunctionHandle, 4> combine_{};  ///< [x][y]: fp32, bfloat16
};

}  // namespace octalane::cuda
