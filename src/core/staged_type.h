// The closed list of ways in which planes become the operands of a lane.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string_view>

namespace octalane {

enum class Lane : uint8_t { bf16, f16, s8, f8 };

enum class StagedType : uint8_t { bf16, f16, s8_group, s8_nested, s8_block, s8_xblock, s8_row, f8_group, f8_row };

struct StagedTypeInfo {
  StagedType type;
  std::string_view name;
  Lane lane;
  /// The stock path: weights and activations decoded and rounded once to 16 bits, fp32 accumulators.
  bool stock;
};

inline constexpr std::array<StagedTypeInfo, 9> kStagedTypes{{
    {StagedType::bf16, "bf16", Lane::bf16, true},
    {StagedType::f16, "f16", Lane::f16, true},
    {StagedType::s8_group, "s8.group", Lane::s8, false},
    {StagedType::s8_nested, "s8.nested", Lane::s8, false},
    {StagedType::s8_block, "s8.block", Lane::s8, false},
    {StagedType::s8_xblock, "s8.xblock", Lane::s8, false},
    {StagedType::s8_row, "s8.row", Lane::s8, false},
    {StagedType::f8_group, "f8.group", Lane::f8, false},
    {StagedType::f8_row, "f8.row", Lane::f8, false},
}};

inline const StagedTypeInfo& info(StagedType type) { return kStagedTypes[static_cast<size_t>(type)]; }
inline std::string_view name(StagedType type) { return info(type).name; }

inline std::optional<StagedType> staged_type_from_name(std::string_view text) {
  for (const StagedTypeInfo& row : kStagedTypes) {
    if (row.name == text) return row.type;
  }
  return std::nullopt;
}

}  // namespace octalane
