#pragma once

#include <initializer_list>

#include "core/staged_type.h"

namespace octalane {

/// A set of staged types.
class StagedSet {
 public:
  constexpr StagedSet() = default;
  constexpr StagedSet(std::initializer_list<StagedType> types) {
    for (const StagedType type : types) insert(type);
  }

  constexpr void insert(StagedType type) { bits_ |= bit(type); }
  constexpr void erase(StagedType type) { bits_ &= ~bit(type); }
  constexpr bool contains(StagedType type) const { return (bits_ & bit(type)) != 0; }
  friend constexpr bool operator==(StagedSet, StagedSet) = default;

 private:
  static constexpr uint32_t bit(StagedType type) { return uint32_t{1} << static_cast<int>(type); }
  uint32_t bits_ = 0;
};

}  // namespace octalane
