// The contract between a kernel and the rest of the house. A kernel is one const row in its ISA's table.cpp; tests,
// benches, the planner and the kernel table in docs/ find it there.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

#include "core/activations_view.h"
#include "core/attention.h"
#include "core/matrix_view.h"
#include "core/packed_view.h"
#include "core/staged_type.h"

namespace octalane {

enum class Op : uint8_t { gemm, gemv };

/// One product, as the planner and supports() see it.
struct Problem {
  int64_t tokens = 0;  ///< M
  int64_t rows = 0;    ///< N
  int64_t cols = 0;    ///< K
  WeightSpec weights;
  StagedType staged = StagedType::bf16;
};

/// y[M, N] f32 = x[M, K] W[N, K]^T for the weight rows of tiles [tile_begin, tile_end).
/// Writes exactly the elements y(m, n) with n < w.rows of those tiles, reads none of them before it has written them.
struct MatmulArgs {
  PackedView w;
  ActivationsView x;
  MatrixView<float> y;  ///< col_stride == 1
  int64_t tile_begin = 0;
  int64_t tile_end = 0;
  std::byte* scratch = nullptr;  ///< scratch_bytes(problem) bytes, kAlignment-aligned, private to the calling thread
  /// s8.row, s8.xblock, f8.row: [tiles][order.rows]; s8.block: [tiles][ceil(K / 256)][order.rows]. See core/restage.h.
  const float* restage = nullptr;
};

struct TileShape {
  int m = 1;  ///< tokens whose accumulators are held at once
  int n = 1;  ///< weight rows
  int k = 1;  ///< columns decoded at once
};

/// How far a kernel may be from the scalar gemm of its staged type.
enum class Exactness : uint8_t {
  bits,   ///< the same bits, so the same for any M and any kernel of this kind
  order,  ///< the same operands, integer parts exact; its fp32 sums are taken in an order of its own (one per kernel)
  unrounded,  ///< as order, but weights are not rounded to the lane's type: nearer to the decoded weights
};

struct Kernel {
  StagedType staged = StagedType::bf16;
  Op op = Op::gemm;
  const char* isa = "";
  Exactness exactness = Exactness::bits;
  TileShape tile;
  TileOrder order;
  ActivationForm form = ActivationForm::bf16_as_f32;
  /// The groups that the form needs for these weights ({} when it has none).
  ActivationGroups (*groups)(const WeightSpec&) = nullptr;
  /// Tells apart what else would have one name; "" = nothing.
  const char* variant = "";
  /// The instruction that bounds it and its nominal rate, the planner's guess until the machine has been probed.
  const char* instruction = "";
  double nominal_ops_per_clock = 0;
  int64_t max_tokens = INT64_MAX;
  /// Why this kernel cannot serve the problem, for a person to read; empty = it can.
  std::string (*supports)(const Problem&) = nullptr;
  int64_t (*scratch_bytes)(const Problem&) = nullptr;
  void (*run)(const MatmulArgs&) = nullptr;
};

/// "s8.group_gemm_4x16x32_avx2", "bf16_gemv-codewords_1x16x8_avx2": computed from the row, so that it cannot lie. An
/// ablation build adds what it leaves out: "..._avx2+no_decode".
std::string name(const Kernel& kernel);

/// Turns rows of fp32 activations into `form`: writes rows [row_begin, row_end) of the buffers, padding included.
/// x may have any row stride (col_stride == 1). Not finite: a group of the s8 form that holds a NaN or an infinity gets
/// scale NaN and codes 0, so exactly its own rows of y are NaN. Zero or tiny (127 / amax overflows): scale 0, codes 0.
/// e4m3 likewise, for the row; tiny is a scale below 2^-126.
struct QuantizeArgs {
  MatrixView<const float> x;
  ActivationGroups groups;
  int64_t stride = 0;
  int64_t row_begin = 0;
  int64_t row_end = 0;
  float* f32 = nullptr;
  int8_t* codes = nullptr;
  float* scales = nullptr;
  int32_t* sums = nullptr;
  uint16_t* bf16 = nullptr;  ///< as ActivationsView's; the tiled forms' rows past x.rows are left alone
};

struct Quantizer {
  ActivationForm form;
  void (*run)(const QuantizeArgs&);
};

/// The operands of a multiply instruction.
enum class ProbeElement : uint8_t { s8, bf16, f16, f32 };

/// What goes on in a probe loop beside the instruction it measures.
enum class ProbeKind : uint8_t {
  registers,  ///< nothing: operands and accumulators stay in registers
  loaded,     ///< as the inner loop of a gemm: both operands are read from L1
  drain_32,   ///< as loaded, and the int32 accumulators are drained every 32 columns: converted, times the weight
              ///< scales, plus biases times sums, times the activation scales, added to fp32 sums
  drain_256,  ///< the same every 256 columns
  drain_row,  ///< the same every 4096 columns, an ordinary row
};

inline constexpr int kProbeOperandBytes = 16 * 1024;
inline constexpr int kProbeScales = 64;
inline constexpr int kProbeOutBytes = 8 * 1024;

struct ProbeArgs {
  int64_t iterations = 0;
  const std::byte* operands = nullptr;  ///< kProbeOperandBytes of elements
  const float* scales = nullptr;        ///< kProbeScales scales; biases likewise
  const float* biases = nullptr;
  /// kProbeOutBytes for the accumulators, so that no result is left unused: int32, fp16 or fp32 as the instruction has
  /// them, fp32 after drains. Bytes that a loop does not need are left alone. All aligned to kAlignment.
  std::byte* out = nullptr;
};

/// A loop that measures one instruction. With operands and scales of 1 and biases of 0, the values in `out` sum up to
/// iterations * ops / 2: every multiply-add counts one.
struct ProbeLoop {
  const char* instruction = "";  ///< as Kernel::instruction; a sequence goes by its first
  Lane lane = Lane::bf16;        ///< that it serves
  ProbeElement element = ProbeElement::s8;
  ProbeKind kind = ProbeKind::registers;
  double ops = 0;  ///< of one iteration; a multiply and an add are two
  void (*run)(const ProbeArgs&) = nullptr;
  /// Null = every processor of the instruction set has it.
  bool (*available)() = nullptr;
};

/// The maths of single rows (core/row_math.h), compiled for an instruction set; the same bits from all of them.
struct RowMath {
  void (*rms_norm)(const float* x, const float* weight, float epsilon, int64_t n, float* out);
  void (*silu_multiply)(float* gate, const float* up, int64_t n);
  void (*add)(float* x, const float* y, int64_t n);
};

/// All that one instruction set brings.
struct IsaTable {
  const char* name;
  /// The instruction set whose kernels, quantizers and attend() complete this one (it comes earlier in the list);
  /// null = this one is whole.
  const char* extends = nullptr;
  /// Why this machine cannot run it; empty = it can. Built without ISA flags, safe anywhere.
  std::string (*unavailable)();
  std::span<const Kernel> kernels;
  std::span<const Quantizer> quantizers;
  void (*attend)(const AttendArgs&);
  const RowMath* rows;
  std::span<const ProbeLoop> probes;
  /// Reads `bytes` bytes, a multiple of 4096, by the widest loads there are; returns something of them all. Null = the
  /// instruction set has no wider loads than those before it.
  uint64_t (*read)(const std::byte* data, int64_t bytes);
};

}  // namespace octalane
