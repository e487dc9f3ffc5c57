// Products on a device: weights that stay in its memory, and launches of the kernels that multiply them.
#pragma once

#include <optional>
#include <vector>

#include "cuda/gemm_table.h"
#include "cuda/session.h"

namespace octalane::cuda {

/// Records in a device's memory. `about` keeps everything but the bytes.
class DeviceWeights {
 public:
  /// Uploads, once. Errors: the device's.
  static Expected<DeviceWeights> upload(const Session& session, Records records);

  const Records& about() const { return about_; }
  /// Of device memory, scales included.
  int64_t bytes() const { return records_.bytes() + supers_.bytes() + unit_scales_.bytes() + shifted_.bytes(); }
  Address records() const { return records_.address(); }
  Address supers() const { return supers_.address(); }
  Address unit_scales() const { return unit_scales_.address(); }
  Address shifted() const { return shifted_.address(); }

 private:
  DeviceWeights(Records about, Buffer records, Buffer supers, Buffer unit_scales, Buffer shifted)
      : about_(std::move(about)),
        records_(std::move(records)),
        supers_(std::move(supers)),
        unit_scales_(std::move(unit_scales)),
        shifted_(std::move(shifted)) {}
  Records about_;
  Buffer records_, supers_, unit_scales_, shifted_;
};

/// Tokens that scales and sums have room for: kernels read whole tiles of them.
constexpr int64_t padded_tokens(int64_t tokens) { return (tokens + 63) / 64 * 64 + 256; }

/// Activations staged for a lane, on the device.
struct StagedTokens {
  int64_t tokens = 0;
  Address x = 0;       ///< [tokens][padded columns]: int8, E4M3, or bfloat16 in the order of bf16_position
  Address scales = 0;  ///< fp32 [groups][padded_tokens(tokens)]
  Address sums = 0;    ///< fp32 likewise: sums of codes, for s8.group with a bias
  Address minima = 0;  ///< s8.nested with minima: bfloat16 [blocks of 256][padded_tokens(tokens)][16], minima_position
};

/// Slots of a product over experts: which tokens of x belong to which expert; see cuda/experts.h.
struct ExpertTiles {
  Address tiles = 0;   ///< ExpertTile[most] of cuda/gemm_args.h, for tiles of `tokens`
  Address count = 0;   ///< int32: how many there are
  int64_t most = 0;    ///< that there can be
  int64_t tokens = 0;  ///< of a tile
};

/// y[tokens][rows]: fp32, any stride; or bfloat16, address and stride multiples of 16 bytes.
struct Output {
  Address address = 0;
  bool f32 = false;
  int64_t stride = 0;  ///< elements
};

struct ProductOptions {
  /// f8.row: columns that the tensor cores sum by themselves, in some 14 bits. 512 columns of products of one sign lose
  /// 1.5e-3 of their sum (H200), less than a bfloat16 output's rounding may; 128 lose 6e-5.
  int promote_cols = 512;
  Address clocks = 0;  ///< two uint64 on the device: clocks and nanoseconds of the first block
};

/// The product kernels of a device of compute capability 8.0 and later.
class Products {
 public:
  /// Errors: a build without device code, a device that has none here, the driver's.
  static Expected<Products> load(const Session& session);

  /// Enqueues y = x W^T; may be captured. Errors: a kernel that cannot serve the weights or is not of this device, an
  /// output it cannot write, the weights of more than one expert, the driver's.
  Status multiply(const GemmKernel& kernel, const DeviceWeights& weights, const StagedTokens& x, const Output& y,
                  const Stream& stream, const ProductOptions& options = {}) const;

  /// Enqueues y[slot] = x[slot] W_e^T for the slots of all experts e, in one launch; may be captured, the table's
  /// contents being read when it runs. The bits of multiply by that expert's weights alone. Slots that no token has: of
  /// fp32 outputs they are not written; of bfloat16 they may be. Errors: as multiply; a kernel
  /// of mma.sync, a table for other tiles.
  Status multiply_experts(const GemmKernel& kernel, const DeviceWeights& weights, const StagedTokens& x,
                          const ExpertTiles& experts, const Output& y, const Stream& stream,
                          const ProductOptions& options = {}) const;

 private:
  explicit Products(const Session& session) : session_(&session) {}
  /// `experts`: null for one matrix.
  Status launch(const GemmKernel& kernel, const DeviceWeights& weights, const StagedTokens& x,
                const ExpertTiles* experts, const Output& y, const Stream& stream, const ProductOptions& options) const;
  Status multiply_by_wgmma(const GemmKernel& kernel, const DeviceWeights& weights, const StagedTokens& x,
                           const ExpertTiles* experts, const Output& y, const Stream& stream,
                           const ProductOptions& options) const;
  Status multiply_by_mma(const GemmKernel& kernel, const DeviceWeights& weights, const StagedTokens& x, const Output& y,
                         const Stream& stream, const ProductOptions& options) const;
  FunctionHandle function(const GemmKernel& kernel) const;
  const Session* session_;
  std::optional<Module> wgmma_module_, mma_module_;
  std::vector<FunctionHandle> functions_;  ///< in the table's order; null: not of this device
};

}  // namespace octalane::cuda
