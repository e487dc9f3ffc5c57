#include "cuda/pack.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>

#include "core/half.h"
#include "core/parallel.h"
#include "core/restage.h"
#include "cuda/packer.h"

namespace octalane::cuda {
namespace {

bool re_encodes_int8(StagedType t) { return restaged(t) && t != StagedType::f8_row; }

int64_t padded(int64_t n, int64_t unit) { return (n + unit - 1) / unit * unit; }

ScaleWords exact_words(const ScaleSpec& scale) {
  if (scale.nested()) return ScaleWords::nested;
  if (scale.type == ScaleType::f16) return scale.has_bias ? ScaleWords::pair_f16 : ScaleWords::single_f16;
  return scale.has_bias ? ScaleWords::pair_bf16 : ScaleWords::single_bf16;
}

ScaleWords words_for(const WeightSpec& spec, StagedType staged, const Restaged* restaged) {
  if (re_encodes_int8(staged)) return ScaleWords::staged;
  if (staged != StagedType::f8_row) return exact_words(spec.scale);
  return restaged == nullptr || restaged->spread <= kMostExponentSpread ? ScaleWords::exponent : ScaleWords::shift;
}

Code code_for(const CodeSpec& code) {
  if (code.map == CodeMap::table) return Code::table;
  if (code.map == CodeMap::e4m3) return Code::e4m3;
  return code.bits <= 4 ? Code::nibble : Code::byte;
}

/// Tables whose upper half is the lower with the sign turned, as E2M1's: f8.row looks up magnitudes.
bool is_sign_magnitude(const std::array<int8_t, 16>& table) {
  for (size_t i = 0; i < 8; ++i) {
    if (table[i] < 0 || table[i + 8] != -table[i]) return false;
  }
  return true;
}

bool is_e4m3(const std::array<int8_t, 16>& table) {
  return std::ranges::all_of(table, [](int8_t level) { return e4m3_to_f32(f32_to_e4m3(level)) == level; });
}

void set_levels(const CodeSpec& code, Records& out) {
  out.zero = code.map == CodeMap::table ? 128 : code.zero;
  // Where weights of a group are of both signs: its value is within the block's largest.
  out.pivot = code.map == CodeMap::table ? 128 : 1 << (code.bits - 1);
  if (code.map != CodeMap::table) return;
  for (size_t i = 0; i < 16; ++i) out.table[i] = static_cast<uint8_t>(code.table[i] + 128);
  if (out.staged != StagedType::f8_row) return;
  for (int k = 0; k < kShifts; ++k) {
    const float unit = std::ldexp(e4m3_unit_of_scale(code), k);  // of the levels, for scale 1
    for (size_t i = 0; i < 8; ++i) {
      out.shifted[size_t(k)] |= uint64_t{restage_e4m3(code.table[i], 1.0f, unit)} << 8 * i;
    }
  }
}

int64_t count_supers(const Records& records) {
  if (records.scales != ScaleWords::nested) return 0;
  return records.padded_rows * ((records.padded_cols / kPanelCols + 1) / 2);
}

int64_t count_bytes(const Records& records) {
  return records.padded_rows / kRecordRows * (records.padded_cols / kRecordCols) * records.layout.bytes;
}

/// `restaged`: as many, or null.
Expected<Records> pack(std::span<const PackedView> experts, StagedType staged, const Restaged* restaged, int threads) {
  const PackedView& first = experts.front();
  const Restaged* widest = restaged;  // which decides what scale words can say
  for (size_t e = 1; restaged != nullptr && e < experts.size(); ++e) {
    if (restaged[e].spread > widest->spread) widest = restaged + e;
  }
  Expected<Records> described = describe_records(first.spec, first.rows, first.cols, staged, widest);
  if (!described) return described;
  Records& out = *described;
  const int64_t expert_rows = out.padded_rows, blocks = (first.rows + kRecordRows - 1) / kRecordRows;
  const auto count = static_cast<int64_t>(experts.size());
  out.experts = count;
  out.padded_rows *= count;
  out.bytes.resize(static_cast<size_t>(count_bytes(out)));
  out.supers.resize(static_cast<size_t>(count_supers(out)));
  if (restaged != nullptr) out.unit_scales.resize(static_cast<size_t>(restaged->units * out.padded_rows));
  std::atomic<int64_t> unfit{-1};
  parallel_for(threads, count * blocks, 1, [&](int, int64_t begin, int64_t end) {
    for (int64_t block = begin; block < end;) {
      const int64_t e = block / blocks, until = std::min(end, (e + 1) * blocks);
      Packer packer(experts[size_t(e)], restaged == nullptr ? nullptr : restaged + e, e * expert_rows, out);
      const int64_t rows = std::min(first.rows, (until - e * blocks) * kRecordRows);
      for (int64_t n = (block - e * blocks) * kRecordRows; n < rows; ++n) {
        if (!packer.row(n)) unfit = e * first.rows + n;
      }
      block = until;
    }
  });
  if (unfit < 0) return described;
  const int64_t e = unfit / first.rows;
  return fail("cuda: {}: {}row {}: a group's scale goes far beyond its codes", name(staged),
              count > 1 ? fmt::format("expert {}, ", e) : "", unfit % first.rows);
}

}  // namespace

int64_t read_bytes(const Records& records) { return count_bytes(records) + count_supers(records) * 4; }

std::string why_no_records(const WeightSpec& spec, StagedType staged) {
  const CodeSpec& code = spec.code;
  const ScaleSpec& scale = spec.scale;
  if (code.is_float()) return "weights without a scale are not served";
  const bool e4m3 = code.map == CodeMap::e4m3;
  if (!code.has_integer_levels() && !(e4m3 && (staged == StagedType::bf16 || info(staged).lane == Lane::f8))) {
    return "levels that are no integers are not served";
  }
  if (scale.nested() && (scale.type != ScaleType::f16 || scale.super != kSuperCols)) {
    return fmt::format("nested scales must be f16 over {} columns", kSuperCols);
  }
  if (scale.type == ScaleType::f32 && !restaged(staged)) return "scales of 32 bits are not served exactly";
  switch (staged) {
    case StagedType::bf16: return {};
    case StagedType::s8_group:
      if (scale.group < 32) return "groups of 16 are half an instruction";
      if (code.map == CodeMap::offset && (1 << code.bits) - code.zero > 128) return "levels go beyond int8";
      return {};
    case StagedType::s8_nested:
      if (!scale.nested()) return "scales are not nested";
      if (scale.group < 32) return "groups of 16 are half an instruction";
      return code.map == CodeMap::offset && (1 << code.bits) - code.zero > 128 ? "levels go beyond int8" : "";
    case StagedType::s8_row:
    case StagedType::s8_xblock:
    case StagedType::s8_block:
      if (code.bits == 8) return "codes of 8 bits are not re-encoded";
      return scale.group < 32 ? "groups of 16 are not re-encoded here" : "";
    case StagedType::f8_group:
      if (code.map == CodeMap::offset) return "levels are integers, not E4M3";
      if (code.map == CodeMap::table && !is_e4m3(code.table)) return "levels are not all E4M3";
      if (scale.has_bias) return "E4M3 has no bias";
      return scale.group < 32 ? "groups of 16 are half an instruction" : "";
    case StagedType::f8_row:
      if (e4m3) return "E4M3 codes are not re-encoded here, use f8.group";
      if (code.map != CodeMap::table || !is_sign_magnitude(code.table)) return "wanted a table of signed magnitudes";
      if (!scale.are_powers_of_two() || scale.has_bias) return "wanted scales that are powers of two, and no bias";
      return scale.group < 32 ? "groups of 16 are not served" : "";
    default: return fmt::format("{} has no kernel for CUDA", name(staged));
  }
}

Expected<Records> describe_records(const WeightSpec& spec, int64_t rows, int64_t cols, StagedType staged,
                                   const Restaged* restaged) {
  if (const std::string why = why_no_records(spec, staged); !why.empty())
    return fail("cuda: {}: {}", name(staged), why);
  Records out;
  out.spec = spec;
  out.staged = staged;
  out.code = code_for(spec.code);
  out.scales = words_for(spec, staged, restaged);
  out.group = spec.scale.group;
  out.rows = rows, out.cols = cols;
  out.padded_rows = padded(rows, kPanelRows), out.padded_cols = padded(cols, kPanelCols);
  out.layout = record_layout(code_bits(out.code), out.group, out.scales);
  set_levels(spec.code, out);
  return out;
}

Expected<Records> pack_records(const PackedView& weights, StagedType staged, const Restaged* restaged, int threads) {
  return pack({&weights, 1}, staged, restaged, threads);
}

Expected<Records> pack_experts(std::span<const PackedView> experts, StagedType staged,
                               std::span<const Restaged> restaged, int threads) {
  if (experts.empty()) return fail("cuda: {}: wanted at least one expert, got none", name(staged));
  if (!restaged.empty() && restaged.size() != experts.size()) {
    return fail("cuda: {}: wanted {} re-encodings, got {}", name(staged), experts.size(), restaged.size());
  }
  const PackedView& first = experts.front();
  for (size_t e = 1; e < experts.size(); ++e) {
    const PackedView& expert = experts[e];
    if (expert.rows != first.rows || expert.cols != first.cols) {
      return fail("cuda: {}: expert {}: wanted {} x {} as the first, got {} x {}", name(staged), e, first.rows,
                  first.cols, expert.rows, expert.cols);
    }
    if (!(expert.spec == first.spec)) {
      return fail("cuda: {}: expert {}: wanted weights of the first expert's kind, got others", name(staged), e);
    }
  }
  return pack(experts, staged, restaged.data(), threads);
}

}  // namespace octalane::cuda
