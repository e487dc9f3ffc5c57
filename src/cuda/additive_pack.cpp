#include "cuda/additive_pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>

#include "core/half.h"
#include "core/parallel.h"
#include "core/planes.h"
#include "cuda/additive_args.h"
#include "cuda/records.h"
#include "weights/pack.h"

namespace octalane::cuda {
namespace {

int64_t padded(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

void pack_row(const PackedView& weights, int64_t n, const PlaneRow& planes, CodebookRecords& out) {
  const int books = out.spec.code.books, vector = out.spec.code.vector, group = out.spec.scale.group;
  const int bytes = code_bytes_of_thread(books, vector);
  const int64_t block = n / kRecordRows, records = out.padded_cols / kRecordCols;
  const auto row = static_cast<int>(n % kRecordRows);
  const int h = row % 16 / 8;
  for (int64_t column = 0; column < weights.cols; column += vector) {
    const auto in = static_cast<int>(column % kRecordCols);
    const int u = in / 32, thread = row / 16 * 32 + row % 8 * 4 + in % 32 / 8;
    const int codeword = u * (8 / vector) + in % 8 / vector;
    std::byte* const to =
        &out.codes[static_cast<size_t>(((block * records + column / kRecordCols) * 128 + thread) * bytes)];
    for (int b = 0; b < books; ++b) {
      to[(codeword * 2 + h) * books + b] = static_cast<std::byte>(planes.codes[column / vector * books + b]);
    }
  }
  for (int64_t g = 0; g < (weights.cols + group - 1) / group; ++g) {
    const int64_t at = (block * (out.padded_cols / group) + g) * kRecordRows + scale_position(row);
    out.scales[static_cast<size_t>(at)] = f32_to_f16(planes.scale[g]);
  }
}

}  // namespace

std::string why_no_codebooks(const WeightSpec& spec) {
  if (!spec.code.is_codebook()) return "weights have no codebooks";
  const ScaleSpec& scale = spec.scale;
  if (scale.type != ScaleType::f16 || scale.nested() || scale.has_bias) return "wanted flat f16 scales without a bias";
  if (scale.group != 32 && scale.group != 64 && scale.group != 128) {
    return fmt::format("wanted groups of 32, 64 or 128 columns, got {}", scale.group);
  }
  return {};
}

Expected<CodebookRecords> pack_codebooks(const PackedView& weights, int threads) {
  if (const std::string why = why_no_codebooks(weights.spec); !why.empty()) return fail("cuda: codebooks: {}", why);
  CodebookRecords out;
  out.spec = weights.spec;
  out.rows = weights.rows, out.cols = weights.cols;
  out.padded_rows = padded(weights.rows, kPanelRows), out.padded_cols = padded(weights.cols, kPanelCols);
  out.split = codebook_split(weights.rows);
  for (const float value : weights.codebook_values()) {
    out.codebooks.push_back(f32_to_f16(value));
    if (std::bit_cast<uint32_t>(f16_to_f32(out.codebooks.back())) != std::bit_cast<uint32_t>(value)) {
      return fail("cuda: codebooks: wanted values that binary16 holds, got {}", value);
    }
  }
  const int64_t blocks = out.padded_rows / kRecordRows;
  out.codes.resize(static_cast<size_t>(blocks * (out.padded_cols / kRecordCols) * 128 *
                                       code_bytes_of_thread(out.spec.code.books, out.spec.code.vector)));
  out.scales.resize(static_cast<size_t>(blocks * (out.padded_cols / out.spec.scale.group) * kRecordRows));
  parallel_for(threads, (weights.rows + kRecordRows - 1) / kRecordRows, 1, [&](int, int64_t begin, int64_t end) {
    Planes planes(weights.spec, 1, weights.cols, weights.codebooks.values);
    for (int64_t n = begin * kRecordRows; n < std::min(weights.rows, end * kRecordRows); ++n) {
      unpack_row(weights, n, planes.row(0));
      pack_row(weights, n, planes.row(0), out);
    }
  });
  return out;
}

}  // namespace octalane::cuda
