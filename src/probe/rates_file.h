// Measured rates as a file, so that a machine is measured once.
#pragma once

#include <string>

#include "core/status.h"
#include "plan/plan.h"

namespace octalane {

/// What rates belong to: another processor, or another build of the kernels, has others.
struct MachineKey {
  std::string cpu;    ///< model name
  std::string flags;  ///< what the processor can do
  std::string build;  ///< hash of the running executable

  friend bool operator==(const MachineKey&, const MachineKey&) = default;
};

/// Of this process. Empty parts where the system does not tell.
MachineKey machine_key();

/// $XDG_CACHE_HOME/octalane/rates-HASH.json, or in ~/.cache; the hash is that of processor and executable's path. ""
/// when neither is set.
std::string default_rates_path(const MachineKey& key);

struct SavedRates {
  MachineKey key;
  Rates rates;
};

/// Reads what write_rates wrote. Whatever else the file holds is an error that names it and what was wanted: nothing in
/// it is trusted. Entries of kernels or formats that this build does not have are errors too.
Expected<SavedRates> read_rates(const std::string& path);

/// Writes under a temporary name and renames; makes the folder when it is missing.
Status write_rates(const std::string& path, const MachineKey& key, const Rates& rates);

}  // namespace octalane
