#include "cli/machine.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "cli/commit.h"
#include "core/ablation.h"
#include "core/parallel.h"

namespace octalane::cli {
namespace {

/// The value of the first "key : value" line of /proc/cpuinfo; "" when there is none.
std::string cpuinfo(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (line.compare(0, key.size(), key) != 0) continue;
    const size_t colon = line.find(':');
    if (colon != std::string::npos && colon + 2 <= line.size()) return line.substr(colon + 2);
  }
  return "";
}

Json cpu_flags() {
  constexpr std::array kPrefixes{"sse4", "avx", "fma", "f16c", "bmi", "amx", "gfni", "vaes"};
  Json flags = Json::array();
  std::istringstream all(cpuinfo("flags"));
  for (std::string flag; all >> flag;) {
    if (std::ranges::any_of(kPrefixes, [&](const char* prefix) { return flag.rfind(prefix, 0) == 0; })) {
      flags.push_back(flag);
    }
  }
  return flags;
}

std::string compiler() {
#ifdef __clang__
  return __VERSION__;
#else
  return fmt::format("GCC {}", __VERSION__);
#endif
}

/// Runnable processes, averaged over the last minute: who else was busy.
Json load_average() {
  double minute = 0;
  return ::getloadavg(&minute, 1) == 1 ? Json(minute) : Json();
}

}  // namespace

Json machine_json(const Context& context) {
  return {{"cpu", cpuinfo("model name")},
          {"flags", cpu_flags()},
          {"cores", usable_cores()},
          {"threads", context.threads()},
          {"last_level_cache_bytes", last_level_cache_bytes()},
          {"compiler", compiler()},
#ifdef NDEBUG
          {"build", "optimised"},
#else
          {"build", "with assertions"},
#endif
          {"version", OCTALANE_VERSION},
          {"commit", *kCommit == 0 ? Json() : Json(kCommit)},
          {"uncommitted_changes", *kCommit == 0 ? Json() : Json(kUncommittedChanges)},
          {"load_average_1min", load_average()}};
}

Json ablation_json() { return kAblation == Ablation::none ? Json() : Json(name(kAblation)); }

std::string command_line() {
  std::ifstream file("/proc/self/cmdline");
  std::string text;
  for (std::string word; std::getline(file, word, '\0');) text += (text.empty() ? "" : " ") + word;
  return text;
}

int64_t peak_memory_bytes() {
  std::ifstream file("/proc/self/status");
  for (std::string line; std::getline(file, line);) {
    int64_t kib = 0;
    if (std::sscanf(line.c_str(), "VmHWM: %ld kB", &kib) == 1) return kib * 1024;
  }
  return -1;
}

int64_t last_level_cache_bytes() {
  int64_t most = 0;
  for (int index = 0; index < 8; ++index) {
    std::ifstream file(fmt::format("/sys/devices/system/cpu/cpu0/cache/index{}/size", index));
    int64_t size = 0;
    char unit = 0;
    if (!(file >> size)) continue;
    file >> unit;
    most = std::max(most, size * (unit == 'K' ? 1024 : unit == 'M' ? 1024 * 1024 : 1));
  }
  return most;
}

double now_seconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace octalane::cli
