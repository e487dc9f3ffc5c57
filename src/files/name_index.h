#pragma once

#include <cstddef>
#include <string_view>
#include <utility>
#include <vector>

namespace octalane {

/// Indices in order of name. Lookups stay logarithmic whatever names a file picks, which a hash table cannot promise.
class NameIndex {
 public:
  /// Takes the names of items 0, 1, ...; returns two items of one name, or {0, 0}.
  std::pair<size_t, size_t> build(std::vector<std::string_view> names);
  /// The item of this name, or `none`.
  size_t find(std::string_view name) const;

  static constexpr size_t none = static_cast<size_t>(-1);

 private:
  std::vector<std::string_view> names_;
  std::vector<size_t> order_;
};

}  // namespace octalane
