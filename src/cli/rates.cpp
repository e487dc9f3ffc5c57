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
class Cache {
 public:
  Cache() {
    std::error_code ignored;
    if (path_.empty() || !std::filesystem::exists(path_, ignored)) return;
    Expected<SavedRates> saved = read_rates(path_);
    if (!saved) {
      fmt::print(stderr, "octalane: {}; measuring again\n", saved.error().message);
    } else if (saved->key == key_) {
      rates = std::move(saved->rates);
    }
  }

  /// Without a folder to save in, the machine is measured each time.
  Status save() const { return path_.empty() ? Status() : write_rates(path_, key_, rates); }
  const MachineKey& key() const { return key_; }

  Rates rates;

 private:
  MachineKey key_ = machine_key();
  std::string path_ = default_rates_path(key_);
};

Cache& cache() {
  static Cache only;
  return only;
}

}  // namespace

Expected<std::shared_ptr<const Rates>> find_rates(const CommonOptions& options, std::span<const IsaTable* const> isas,
                                                  const std::vector<const Format*>& formats, Unmeasured unmeasured,
                                                  StagedSet also) {
  const bool ablated = kAblation != Ablation::none;  // its kernels cost what no other build's do
  if (options.rates == "nominal" || (ablated && options.rates == "auto")) return nullptr;
  if (options.rates != "auto") {
    Expected<SavedRates> saved = read_rates(options.rates);
    if (!saved) return fail_with(saved);
    return std::make_shared<const Rates>(std::move(saved->rates));
  }
  const RatesWanted wanted{isas, staged_type_from_name(options.lane), formats, also};
  const size_t missing = missing_rates(cache().rates, wanted).size();
  if (missing > 0 && unmeasured == Unmeasured::measure) {
    fmt::print(stderr, "octalane: measuring the kernels of {} weight format{}, once for this machine and build\n",
               missing, missing > 1 ? "s" : "");
    measure_missing(wanted, cache().rates, [](int, int) { return !interrupted(); });
    if (const Status saved = cache().save(); !saved) {
      fmt::print(stderr, "octalane: {}; the rates will be measured again\n", saved.error().message);
    }
  }
  return std::make_shared<const Rates>(cache().rates);
}

Status save_rates(const Rates& measured, const std::string& path) {
  for (const KernelRate& rate : measured.all()) cache().rates.set(rate);
  if (const Status saved = cache().save(); !saved) return saved;
  return path.empty() ? Status() : write_rates(path, cache().key(), measured);
}

}  // namespace octalane::cli
