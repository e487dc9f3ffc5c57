#include "probe/rates_file.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>

#include "core/fnv1a.h"
#include "files/output_file.h"
#include "formats/format.h"
#include "kernels/registry.h"
#include "probe/rates_document.h"

namespace octalane {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr std::streamsize kMostBytes = 4 << 20;
constexpr double kMostSecondsPerWeight = 1;

/// The value of the first "key : value" line of /proc/cpuinfo.
std::string cpuinfo(const std::string& key) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    const size_t colon = line.find(':');
    if (line.starts_with(key) && colon != std::string::npos && colon + 2 <= line.size()) return line.substr(colon + 2);
  }
  return "";
}

std::string file_bytes(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  std::string bytes(file.seekg(0, std::ios::end) ? static_cast<size_t>(file.tellg()) : 0, '\0');
  file.seekg(0).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  return bytes;
}

const Kernel* find_kernel(const std::string& wanted) {
  for (const IsaTable* isa : isa_tables()) {
    for (const Kernel& kernel : isa->kernels) {
      if (name(kernel) == wanted) return &kernel;
    }
  }
  return nullptr;
}

/// The first format of these weights.
const Format* format_of(const WeightSpec& spec) {
  for (const Format* format : formats()) {
    if (format->spec == spec) return format;
  }
  return nullptr;
}

/// A member that is a string; null when there is none.
const std::string* text_at(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  return found != object.end() && found->is_string() ? found->template get_ptr<const std::string*>() : nullptr;
}

/// [[tokens, seconds per weight], ...], tokens ascending from 1; empty when it is anything else.
std::vector<RatePoint> points_of(const Json& object) {
  const auto found = object.find("points");
  if (found == object.end() || !found->is_array()) return {};
  std::vector<RatePoint> points;
  for (const Json& pair : *found) {
    if (!pair.is_array() || pair.size() != 2 || !pair[0].is_number_unsigned() || !pair[1].is_number_float()) return {};
    const auto tokens = pair[0].get<uint64_t>();
    const auto seconds = pair[1].get<double>();
    const bool ascends = points.empty() ? tokens == 1 : tokens > static_cast<uint64_t>(points.back().tokens);
    if (!ascends || tokens > 1u << 30 || !(seconds > 0 && seconds <= kMostSecondsPerWeight)) return {};
    points.push_back({static_cast<int64_t>(tokens), seconds});
  }
  return points;
}

Expected<MachineKey> key_of(const std::string& path, const Json& document) {
  const auto found = document.find("machine");
  const Json machine = found != document.end() ? *found : Json();
  const std::string *cpu = text_at(machine, "cpu"), *flags = text_at(machine, "flags"),
                    *build = text_at(machine, "build");
  if (cpu == nullptr || flags == nullptr || build == nullptr) {
    return fail("{}: machine: wanted cpu, flags and build, got something else", path);
  }
  return MachineKey{*cpu, *flags, *build};
}

Expected<KernelRate> rate_of(const std::string& path, size_t index, const Json& row) {
  const std::string *kernel_name = text_at(row, "kernel"), *format_name = text_at(row, "format");
  if (kernel_name == nullptr || format_name == nullptr) {
    return fail("{}: kernels[{}]: wanted a kernel and a format, got something else", path, index);
  }
  const Kernel* kernel = find_kernel(*kernel_name);
  if (kernel == nullptr) return fail("{}: kernels[{}]: wanted a kernel of this build, got another", path, index);
  const Format* format = find_format(*format_name);
  if (format == nullptr) return fail("{}: kernels[{}]: wanted a format of this build, got another", path, index);
  std::vector<RatePoint> points = points_of(row);
  if (points.empty()) {
    return fail("{}: kernels[{}]: points: wanted pairs of ascending tokens from 1 and seconds, got something else",
                path, index);
  }
  return KernelRate{kernel, format->spec, std::move(points)};
}

}  // namespace

MachineKey machine_key() {
  Fnv1a build;
  build.add(file_bytes("/proc/self/exe"));
  return {cpuinfo("model name"), cpuinfo("flags"), build.hex()};
}

std::string default_rates_path(const MachineKey& key) {
  const char *cache = std::getenv("XDG_CACHE_HOME"), *home = std::getenv("HOME");
  const bool has_cache = cache != nullptr && *cache != '\0';
  if (!has_cache && (home == nullptr || *home == '\0')) return "";
  const std::filesystem::path folder =
      has_cache ? std::filesystem::path(cache) : std::filesystem::path(home) / ".cache";
  std::error_code ignored;
  const std::string executable = std::filesystem::read_symlink("/proc/self/exe", ignored).string();
  Fnv1a hash;
  for (const std::string& part : {key.cpu, key.flags, executable}) hash.add(part);
  return (folder / "octalane" / fmt::format("rates-{}.json", hash.hex())).string();
}

Expected<SavedRates> read_rates(const std::string& path) {
  const Expected<Json> read = read_rates_document(path, "octalane_rates", kVersion, kMostBytes);
  if (!read) return fail_with(read);
  const Json& document = *read;
  SavedRates saved;
  Expected<MachineKey> key = key_of(path, document);
  if (!key) return fail_with(key);
  saved.key = std::move(*key);
  const auto rows = document.find("kernels");
  if (rows == document.end() || !rows->is_array()) return fail("{}: kernels: wanted a list, got something else", path);
  for (size_t i = 0; i < rows->size(); ++i) {
    Expected<KernelRate> rate = rate_of(path, i, (*rows)[i]);
    if (!rate) return fail_with(rate);
    saved.rates.set(std::move(*rate));
  }
  return saved;
}

Status write_rates(const std::string& path, const MachineKey& key, const Rates& rates) {
  Json rows = Json::array();
  for (const KernelRate& rate : rates.all()) {
    const Format* format = format_of(rate.weights);
    if (format == nullptr) continue;
    Json points = Json::array();
    for (const RatePoint& point : rate.points) points.push_back({point.tokens, point.seconds_per_weight});
    rows.push_back({{"kernel", name(*rate.kernel)}, {"format", format->name}, {"points", std::move(points)}});
  }
  const Json document{{"octalane_rates", kVersion},
                      {"machine", {{"cpu", key.cpu}, {"flags", key.flags}, {"build", key.build}}},
                      {"kernels", std::move(rows)}};
  const std::string text = document.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  std::error_code ignored;  // create() then says what is wrong
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  Expected<OutputFile> file = OutputFile::create(path);
  if (!file) return fail_with(file);
  if (const Status written = file->write(std::as_bytes(std::span(text))); !written) return written;
  return file->commit();
}

}  // namespace octalane
