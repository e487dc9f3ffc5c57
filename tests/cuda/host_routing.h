// What routing is to give, in plain words of C++, and choices to route.
#pragma once

#include <array>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "cuda/experts.h"

namespace octalane::test {

struct HostRouting {
  std::vector<int32_t> source, slot_of;
  std::vector<cuda::ExpertRange> ranges;
  std::array<std::vector<cuda::ExpertTile>, cuda::kTileSizes> tiles;
  int32_t slots = 0, left_out = 0;
};

/// Experts one after another, each with its choices in order.
inline HostRouting route_on_host(const std::vector<int32_t>& choices, const cuda::RoutingShape& shape) {
  HostRouting routing;
  routing.slot_of.assign(choices.size(), -1);
  for (const int32_t e : choices) routing.left_out += e < 0 || e >= shape.experts;
  for (int32_t e = 0; e < shape.experts; ++e) {
    const auto begin = static_cast<int32_t>(routing.source.size());
    for (size_t i = 0; i < choices.size(); ++i) {
      if (choices[i] != e) continue;
      routing.slot_of[i] = static_cast<int32_t>(routing.source.size());
      routing.source.push_back(static_cast<int32_t>(static_cast<int64_t>(i) / shape.top_k));
    }
    const auto end = static_cast<int32_t>(routing.source.size());
    while (routing.source.size() % 64 != 0) routing.source.push_back(-1);
    routing.ranges.push_back({begin, end});
    int32_t tokens = 64;
    for (std::vector<cuda::ExpertTile>& table : routing.tiles) {
      const auto first = static_cast<int32_t>(table.size());
      for (int32_t slot = begin; slot < end; slot += tokens) table.push_back({begin, end, first, e});
      tokens += 64;
    }
  }
  routing.slots = static_cast<int32_t>(routing.source.size());
  routing.source.resize(static_cast<size_t>(most_slots(shape)), -1);
  return routing;
}

struct NamedChoices {
  std::string name;
  cuda::RoutingShape shape;
  std::vector<int32_t> choices;
};

/// Any expert each time, the same one twice included.
inline NamedChoices random_choices(const cuda::RoutingShape& shape, uint32_t seed) {
  std::mt19937 random(seed);
  NamedChoices made{"random", shape, {}};
  for (int64_t i = 0; i < shape.choices(); ++i) {
    made.choices.push_back(static_cast<int32_t>(random() % static_cast<uint32_t>(shape.experts)));
  }
  return made;
}

/// All choices are one expert's.
inline NamedChoices crowd(const cuda::RoutingShape& shape, int32_t expert) {
  return {"one expert", shape, std::vector<int32_t>(static_cast<size_t>(shape.choices()), expert)};
}

/// Of six experts or more: 0 and 5 have no one, 1 has a single token, 2 all of them, 3 and 4 some each; and choices of
/// experts that there are not.
inline NamedChoices uneven_choices(int64_t tokens, int64_t experts) {
  NamedChoices made{"uneven", {tokens, 2, experts}, {}};
  for (int64_t t = 0; t < tokens; ++t) {
    made.choices.push_back(t == tokens / 2 ? 1 : t % 3 == 0 ? 4 : 3);
    made.choices.push_back(2);
  }
  if (tokens < 4) return made;
  made.choices[0] = -1;
  made.choices[4] = static_cast<int32_t>(experts);
  made.choices.back() = std::numeric_limits<int32_t>::max();
  return made;
}

}  // namespace octalane::test
