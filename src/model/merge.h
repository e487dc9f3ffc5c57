// The loop that both kinds of BPE share: of all neighbours that may merge, the cheapest pair merges, until none may.
#pragma once

#include <cstdint>
#include <optional>
#include <queue>
#include <vector>

namespace octalane {

/// A stretch of a text, in a list linked by indices; -1 ends the list. A symbol merged into its left neighbour has
/// length 0.
struct Symbol {
  int32_t previous, next;
  uint32_t begin, length;
  int32_t piece;  ///< what the stretch is, -1 = nothing known
};

struct Merge {
  double cost;    ///< the lowest merges first, the leftmost of equals
  int32_t piece;  ///< what both become
};

/// Symbols longer than this are not built: indices stay 32 bits wide.
constexpr size_t kLongestText = size_t{1} << 30;

/// merge_of(left, right) -> std::optional<Merge>, the same for the same two stretches. O(n log n) calls for n symbols.
template <class MergeOf>
void merge_symbols(std::vector<Symbol>& symbols, MergeOf merge_of) {
  struct Candidate {
    Merge merge;
    int32_t left;
    uint32_t length;  // of both: another length by now means that one of them has changed
    bool operator<(const Candidate& other) const {
      return merge.cost != other.merge.cost ? merge.cost > other.merge.cost : left > other.left;
    }
  };
  std::priority_queue<Candidate> queue;
  const auto consider = [&](int32_t left) {
    if (left < 0 || symbols[left].next < 0) return;
    const Symbol& right = symbols[symbols[left].next];
    if (const std::optional<Merge> merge = merge_of(symbols[left], right))
      queue.push({*merge, left, symbols[left].length + right.length});
  };

  for (size_t i = 0; i + 1 < symbols.size(); ++i) consider(static_cast<int32_t>(i));
  while (!queue.empty()) {
    const Candidate best = queue.top();
    queue.pop();
    Symbol& left = symbols[best.left];
    if (left.length == 0 || left.next < 0) continue;
    Symbol& right = symbols[left.next];
    if (left.length + right.length != best.length) continue;

    left.length += right.length;
    left.piece = best.merge.piece;
    left.next = right.next;
    right.length = 0;
    if (left.next >= 0) symbols[left.next].previous = best.left;
    consider(left.previous);
    consider(best.left);
  }
}

}  // namespace octalane
