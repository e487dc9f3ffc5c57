#include "cli/rates.h"

#include <fmt/format.h>

#include <cstdio>
#include <filesystem>

#include "cli/terminal.h"
#include "core/ablation.h"
#include "core/staged_type.h"
#include "probe/kernel_rates.h"
#include "probe/rates_file.h"

namespace octalane::cli {
namespace {

/// This machine's rates: what the cache holds, and what has been measured since.
struct Cache {
  MachineKey key = machine_key();
  std::string path = default_rates_path(key);
  Rates rates;

  Cache() {
    std::error_code ignored;
    if (path.empty() || !std::filesystem::exists(path, ignored)) return;
    Expected<SavedRates> saved = read_rates(path);
    if (!saved) {
      fmt::print(stderr, "octalane: {}; measuring again\n", saved.error().message);
    } else if (saved->key == key) {
      rates = std::move(saved->rates);
    }
  }

  void save() const {
    if (path.empty()) return;
    if (const Status saved = write_rates(path, key, rates); !saved) {
      fmt::print(stderr, "octalane: {}; the rates will be measured again\n", saved.error().message);
    }
  }
};

}  // namespace

Expected<std::shared_ptr<const Rates>> find_rates(const CommonOptions& options, std::span<const IsaTable* const> isas,
                                                  const std::vector<const Format*>& formats, Unmeasured unmeasured) {
  const bool ablated = kAblation != Ablation::none;  // its kernels cost what no other build's do
  if (options.rates == "nominal" || (ablated && options.rates == "auto")) return nullptr;
  if (options.rates != "auto") {
    Expected<SavedRates> saved = read_rates(options.rates);
    if (!saved) return fail_with(saved);
    return std::make_shared<const Rates>(std::move(saved->rates));
  }
  static Cache cache;
  const RatesWanted wanted{isas, staged_type_from_name(options.lane), formats};
  const size_t missing = missing_rates(cache.rates, wanted).size();
  if (missing > 0 && unmeasured == Unmeasured::measure) {
    fmt::print(stderr, "octalane: measuring the kernels of {} weight format{}, once for this machine and build\n",
               missing, missing > 1 ? "s" : "");
    measure_missing(wanted, cache.rates, [](int, int) { return !interrupted(); });
    cache.save();
  }
  return std::make_shared<const Rates>(cache.rates);
}

}  // namespace octalane::cli
