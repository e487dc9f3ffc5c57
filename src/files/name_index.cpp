#include "files/name_index.h"

#include <algorithm>

namespace octalane {

std::pair<size_t, size_t> NameIndex::build(std::vector<std::string_view> names) {
  names_ = std::move(names);
  order_.resize(names_.size());
  for (size_t i = 0; i < order_.size(); ++i) order_[i] = i;
  std::sort(order_.begin(), order_.end(),
            [this](size_t a, size_t b) { return names_[a] != names_[b] ? names_[a] < names_[b] : a < b; });
  const auto same = [this](size_t a, size_t b) { return names_[a] == names_[b]; };
  const auto twice = std::adjacent_find(order_.begin(), order_.end(), same);
  return twice == order_.end() ? std::pair<size_t, size_t>{0, 0} : std::pair{twice[0], twice[1]};
}

size_t NameIndex::find(std::string_view name) const {
  const auto at = std::lower_bound(order_.begin(), order_.end(), name,
                                   [this](size_t i, std::string_view wanted) { return names_[i] < wanted; });
  return at != order_.end() && names_[*at] == name ? *at : none;
}

}  // namespace octalane
