#include "kernels/weight_support.h"

#include <fmt/format.h>

#include <algorithm>

#include "core/half.h"
#include "core/restage.h"

namespace octalane {
namespace {

std::string why_not_codes(const CodeSpec& code) {
  if (code.is_float()) {
    const int wanted = code.map == CodeMap::f32 ? 32 : 16;
    if (code.bits == wanted) return {};
    return fmt::format("float elements of {} bits, wanted {}", code.bits, wanted);
  }
  if (code.map == CodeMap::table) {
    return code.bits == 4 ? std::string{} : fmt::format("table codes of {} bits, wanted 4", code.bits);
  }
  if (code.map == CodeMap::e4m3) {
    return code.bits == 8 ? std::string{} : fmt::format("E4M3 codes of {} bits, wanted 8", code.bits);
  }
  if (code.is_codebook()) {
    if (code.bits == 8 && (code.books == 1 || code.books == 2) && (code.vector == 4 || code.vector == 8)) return {};
    return fmt::format("{} codebooks of {} values and codes of {} bits, wanted 1 or 2, 4 or 8, and 8", code.books,
                       code.vector, code.bits);
  }
  for (const int bits : {2, 3, 4, 5, 6, 8}) {
    if (code.bits == bits) return {};
  }
  return fmt::format("codes of {} bits, wanted 2, 3, 4, 5, 6 or 8", code.bits);
}

std::string why_not_scales(const ScaleSpec& scale) {
  const int group = scale.group;
  if (group != 16 && group != 32 && group != 64 && group != 128) {
    return fmt::format("groups of {} columns, wanted 16, 32, 64 or 128", group);
  }
  if (scale.nested() && (scale.super > 256 || scale.super % std::max(kBlockCols, group) != 0)) {
    return fmt::format("super-groups of {} columns, wanted a multiple of {} up to 256", scale.super,
                       std::max(kBlockCols, group));
  }
  if (scale.type == ScaleType::none) return "codes without a scale";
  return {};
}

std::string why_not_e4m3(const WeightSpec& spec, StagedType staged) {
  if (spec.code.is_float()) return "weights are floats without a scale: no f8 lane";
  if (spec.code.map == CodeMap::offset) return "weights are integers: no f8 lane";
  if (spec.scale.has_bias) return "weights have a bias: no f8 lane";
  if (spec.code.map == CodeMap::table) {
    for (const int level : spec.code.table) {
      const auto wanted = static_cast<float>(level);
      if (e4m3_to_f32(f32_to_e4m3(wanted)) != wanted)
        return fmt::format("level {} is no E4M3 value: no f8 lane", level);
    }
  }
  if (staged == StagedType::f8_row && (!spec.scale.are_powers_of_two() || spec.scale.nested())) {
    return "scales that need not be powers of two: they do not move to one per row, use f8.group";
  }
  return {};
}

}  // namespace

std::string why_not_staged(const Problem& problem) {
  const WeightSpec& spec = problem.weights;
  std::string why = why_not_codes(spec.code);
  if (!why.empty()) return why;
  if (spec.code.is_codebook() && problem.staged != StagedType::s8_group && !info(problem.staged).stock) {
    return "codebooks: the int8 lane has one unit for all of them, use s8.group";
  }
  if (!spec.code.has_integer_levels() && !spec.code.is_codebook() && info(problem.staged).lane == Lane::s8) {
    return "weights are floats: there are no integer codes to multiply";
  }
  if (info(problem.staged).lane == Lane::f8) why = why_not_e4m3(spec, problem.staged);
  if (spec.code.is_float() || !why.empty()) return why;
  why = why_not_scales(spec.scale);
  if (!why.empty()) return why;
  if (problem.staged == StagedType::s8_nested && !spec.scale.nested()) {
    return "scales are not nested: there are no integer sub-scales";
  }
  if (restaged(problem.staged) && spec.code.map == CodeMap::offset && spec.code.bits == 8) {
    return "codes of 8 bits: re-encoding them would lose more than they do, use s8.group";
  }
  if (spec.code.is_codebook()) {
    if (spec.scale.nested() || spec.scale.has_bias || spec.scale.group < kBlockCols) {
      return "codebooks under scales that are nested, biased or for fewer than 32 columns";
    }
    return problem.cols % kBlockCols == 0
               ? ""
               : fmt::format("{} columns, wanted a multiple of {}", problem.cols, kBlockCols);
  }
  const int unit = spec.scale.nested() ? spec.scale.super : spec.scale.group;
  if (problem.cols % unit != 0) return fmt::format("{} columns, wanted a multiple of {}", problem.cols, unit);
  return {};
}

std::string why_not_plain(const Problem& problem) {
  std::string why = why_not_staged(problem);
  if (!why.empty() || !problem.weights.code.is_codebook()) return why;
  return "codebooks: this kernel multiplies codes of single weights";
}

std::string why_not_codebook(const Problem& problem) {
  std::string why = why_not_staged(problem);
  if (!why.empty() || problem.weights.code.is_codebook()) return why;
  return "codes of single weights: this kernel multiplies codebooks";
}

ActivationGroups no_groups(const WeightSpec&) { return {}; }

ActivationGroups s8_group_groups(const WeightSpec& spec) {
  return {.scale_group = std::max<int>(kBlockCols, spec.scale.group), .sum_group = spec.scale.group};
}

ActivationGroups s8_nested_groups(const WeightSpec& spec) {
  return {.scale_group = spec.scale.super, .sum_group = spec.scale.group};
}

ActivationGroups block_groups(const WeightSpec&) { return {.scale_group = kRestageBlock, .sum_group = 0}; }
ActivationGroups whole_row_groups(const WeightSpec&) { return {.scale_group = kWholeRow, .sum_group = 0}; }

}  // namespace octalane
