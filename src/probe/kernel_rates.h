// What the kernels of this machine cost, by the number of tokens: the rates that plans are made from.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <vector>

#include "formats/format.h"
#include "plan/plan.h"

namespace octalane {

/// The kernels of which instruction sets and lane, with the weights of which formats.
struct RatesWanted {
  std::span<const IsaTable* const> isas;  ///< that this machine has
  std::optional<StagedType> lane;         ///< empty = auto, the stock lane
  std::vector<const Format*> formats;
  StagedSet also{};  ///< lanes beside that one
};

/// The formats among those of which `rates` lacks a kernel, each with all its kernels of that lane: what is compared
/// must come from one run. Formats of one spec cost the same, so only the first is listed; formats that cannot be
/// written, and so cannot be made up, are left out; additive codebooks can be made up without an encoder.
struct MissingRates {
  const Format* format;
  std::vector<const Kernel*> kernels;
};
std::vector<MissingRates> missing_rates(const Rates& rates, const RatesWanted& wanted);

/// Measures what is missing. Each kernel multiplies on one thread, so that a plan does not depend on the number of
/// threads: random weights of kRateRows x kRateCols, evicted from every cache before each call as they would be in a
/// model, by 1 to kMostRateTokens tokens in its form already. The least of several interleaved calls counts, for what
/// disturbs only adds. A kernel that is slow, or far behind the fastest, is not
/// measured with more tokens.
/// `progress(done, all)` is called between formats; when it returns false, the rest stays unmeasured.
inline constexpr int64_t kRateRows = 512;
inline constexpr int64_t kRateCols = 2048;
inline constexpr int64_t kMostRateTokens = 512;
void measure_missing(const RatesWanted& wanted, Rates& rates,
                     const std::function<bool(int done, int all)>& progress = {});

}  // namespace octalane
