// What bounds a product on this machine, measured in the process that times the product.
#pragma once

#include <optional>
#include <vector>

#include "cli/command.h"
#include "probe/memory.h"

namespace octalane::cli {

/// One sample, of some milliseconds, of the instruction that bounds a kernel: TOP/s with operands loaded from L1.
/// Nothing when no probe loop has it. Samples belong between those of the kernel: on a busy machine both drift.
std::optional<double> sample_loaded_tops(const Choice& choice, int threads);

/// How fast all threads of a context together read memory; measured when it is asked for first.
class ReadRates {
 public:
  explicit ReadRates(const Context& context);

  /// GB/s of reading `bytes` again and again, between the two nearest sizes measured; nothing without a read loop.
  std::optional<double> gbps(int64_t bytes);
  /// As `octalane probe` has it.
  Json json() const { return memory_json(rates_); }

  static Json memory_json(const std::vector<MemoryRate>& rates);

 private:
  int threads_;
  std::vector<const IsaTable*> isas_;
  bool measured_ = false;
  std::vector<MemoryRate> rates_;
};

}  // namespace octalane::cli
