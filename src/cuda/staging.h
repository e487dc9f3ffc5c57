// Activations on a device, put into the form that a lane multiplies.
#pragma once

#include "core/staged_type.h"
#include "cuda/product.h"

namespace octalane::cuda {

enum class StagedElement { bf16, f16, s8, e4m3 };

/// What products want of their input. Products of one input whose forms are equal share what was staged once.
struct StagingForm {
  StagedElement element = StagedElement::bf16;
  int group = 0;             ///< s8: columns of a scale, 32 to 256; 0: the row. f16: columns of a sum, 16 to 64
  bool sums = false;         ///< s8: sums of codes by group
  bool minima = false;       ///< s8 by 256: sums of 32 codes as operands
  Code code = Code::nibble;  ///< f16: what the codes of the weights are
  friend bool operator==(const StagingForm&, const StagingForm&) = default;
};

/// The form of a lane for weights with `group` columns a scale. s8.group has sums and s8.nested minima whether these
/// weights have a bias or not, so that more products share it.
StagingForm staging_form(StagedType staged, int group);

/// "bf16", "f16 for nibbles by 32", "s8 by row", "s8 by 64 with sums", "s8 by 256 with minima", "e4m3 by row".
std::string name(const StagingForm& form);

/// x[tokens][cols] on the device.
struct Tokens {
  Address address = 0;  ///< a multiple of an element's bytes
  bool f32 = true;      ///< else bfloat16
  int64_t tokens = 0, cols = 0;
  int64_t stride = 0;  ///< elements from row to row
};

/// Rows of x, on the device, in the place of its tokens: read when the work runs, so that a graph may meet others.
struct Gather {
  Address source = 0;     ///< int32 [tokens]: which row of x, less than 0 for zeros
  int64_t tokens = 0;     ///< to be staged
  bool in_place = false;  ///< row t of x for token t, unless source says zeros
};

/// Device memory of the caller; from an address that is a multiple of kWorkspaceAlignment, as allocations are.
struct Workspace {
  Address address = 0;
  int64_t bytes = 0;
};
inline constexpr int64_t kWorkspaceAlignment = 256;

/// Columns of a staged row.
int64_t staged_columns(const StagingForm& form, int64_t cols);

/// Of a workspace, for this many tokens and any fewer; a multiple of the alignment.
int64_t staging_bytes(const StagingForm& form, int64_t tokens, int64_t cols);

/// The kernels that stage.
class Staging {
 public:
  /// Errors: a build without device code, a device that has none here, the driver's.
  static Expected<Staging> load(const Session& session);

  /// Enqueues; may be captured. The same bits as the scalar quantizers, whatever the number of tokens. A row's columns
  /// past the last are 0, and so are scales, sums and minima of tokens past the last; a group that holds a value that
  /// is not finite has scale NaN and codes 0. f16 is bfloat16 times a power of two of the token's, exact but for values
  /// 2^24 times smaller than its largest, which are off by at most 2^-35 of that. Errors: a workspace too small or not
  /// aligned, tokens not aligned, a form that the device does not have, the driver's.
  Expected<StagedTokens> stage(const StagingForm& form, const Tokens& x, const Workspace& workspace,
                               const Stream& stream) const;

  /// The same of gathered rows, each with the bits that it has among its own tokens; a workspace for gather.tokens.
  /// Errors: also x that has fewer rows than are taken in place.
  Expected<StagedTokens> stage_gathered(const StagingForm& form, const Tokens& x, const Gather& gather,
                                        const Workspace& workspace, const Stream& stream) const;

 private:
  Expected<StagedTokens> enqueue(const StagingForm& form, const Tokens& x, const Gather& gather,
                                 const Workspace& workspace, const Stream& stream) const;
  Staging(const Session& session, Module module) : session_(&session), module_(std::move(module)) {}
  const Session* session_;
  Module module_;
  std::vector<FunctionHandle> functions_;  ///< [element][fp32, bfloat16]; null: not of this device
};

}  // namespace octalane::cuda
