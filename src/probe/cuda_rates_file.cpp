#include "probe/cuda_rates_file.h"

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>

#include "files/output_file.h"
#include "probe/rates_document.h"

namespace octalane {
namespace {

using Json = nlohmann::ordered_json;

constexpr int kVersion = 1;
constexpr std::streamsize kMostBytes = 1 << 20;
constexpr double kMostSeconds = 1, kLeastBytesPerSecond = 1e6, kMostBytesPerSecond = 1e15;
constexpr const char *kPanel = "panel_seconds", *kBytes = "bytes_per_second", *kFixed = "fixed_seconds",
                     *kPower = "power_seconds";

enum class Kind { none, gemm, gemv };

Kind kind_of(const std::string& kernel) {
  const auto named = [&](const auto& row) { return cuda::name(row) == kernel; };
  if (std::ranges::any_of(cuda::gemm_kernels(), named)) return Kind::gemm;
  return std::ranges::any_of(cuda::gemv_kernels(), named) ? Kind::gemv : Kind::none;
}

/// A member that is a number within bounds.
std::optional<double> number_at(const Json& object, const char* key, double least, double most) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end() || !found->is_number()) return std::nullopt;
  const auto value = found->get<double>();
  if (!(value >= least && value <= most)) return std::nullopt;
  return value;
}

std::optional<std::string> text_at(const Json& object, const char* key) {
  const auto found = object.is_object() ? object.find(key) : object.end();
  if (found == object.end() || !found->is_string()) return std::nullopt;
  return found->get<std::string>();
}

Expected<CudaDeviceKey> device_of(const std::string& path, const Json& document) {
  const auto found = document.find("device");
  const Json device = found != document.end() ? *found : Json();
  const auto name = text_at(device, "name");
  const auto capability = number_at(device, "capability", 1, 1000),
             multiprocessors = number_at(device, "multiprocessors", 1, 100'000);
  if (!name || !capability || !multiprocessors) {
    return fail("{}: device: wanted name, capability and multiprocessors, got something else", path);
  }
  return CudaDeviceKey{*name, static_cast<int>(*capability), static_cast<int>(*multiprocessors)};
}

Status add_rate(const std::string& path, size_t index, const Json& row, cuda::Rates& rates) {
  const auto name = text_at(row, "kernel");
  const Kind kind = name ? kind_of(*name) : Kind::none;
  if (kind == Kind::none) return fail("{}: kernels[{}]: wanted a kernel of this build, got another", path, index);
  const auto fixed = number_at(row, kFixed, 0, kMostSeconds);
  if (!fixed) return fail("{}: kernels[{}]: {}: wanted 0 to {}, got something else", path, index, kFixed, kMostSeconds);
  cuda::KernelRate rate{.fixed_seconds = *fixed};
  if (kind == Kind::gemm) {
    const auto seconds = number_at(row, kPanel, 1e-15, kMostSeconds);
    if (!seconds) {
      return fail("{}: kernels[{}]: {}: wanted 1e-15 to {}, got something else", path, index, kPanel, kMostSeconds);
    }
    rate.panel_seconds = *seconds;
    if (row.contains(kPower)) {
      const auto power = number_at(row, kPower, 1e-15, kMostSeconds);
      if (!power) {
        return fail("{}: kernels[{}]: {}: wanted 1e-15 to {}, got something else", path, index, kPower, kMostSeconds);
      }
      rate.power_seconds = *power;
    }
  } else {
    const auto bytes = number_at(row, kBytes, kLeastBytesPerSecond, kMostBytesPerSecond);
    if (!bytes) {
      return fail("{}: kernels[{}]: {}: wanted {} to {}, got something else", path, index, kBytes, kLeastBytesPerSecond,
                  kMostBytesPerSecond);
    }
    rate.bytes_per_second = *bytes;
  }
  if (!rates.kernels.emplace(*name, rate).second)
    return fail("{}: kernels[{}]: wanted it once, got it twice", path, index);
  return {};
}

}  // namespace

CudaDeviceKey cuda_device_key(const cuda::DeviceInfo& device) {
  return {device.name, device.capability, device.multiprocessors};
}

Expected<SavedCudaRates> read_cuda_rates(const std::string& path) {
  const Expected<Json> read = read_rates_document(path, "octalane_cuda_rates", kVersion, kMostBytes);
  if (!read) return fail_with(read);
  const Json& document = *read;
  SavedCudaRates saved;
  Expected<CudaDeviceKey> device = device_of(path, document);
  if (!device) return fail_with(device);
  saved.device = std::move(*device);
  const auto memory = number_at(document, "memory_bytes_per_second", kLeastBytesPerSecond, kMostBytesPerSecond);
  if (!memory) {
    return fail("{}: memory_bytes_per_second: wanted {} to {}, got something else", path, kLeastBytesPerSecond,
                kMostBytesPerSecond);
  }
  saved.rates.memory_bytes_per_second = *memory;
  const auto rows = document.find("kernels");
  if (rows == document.end() || !rows->is_array()) return fail("{}: kernels: wanted a list, got something else", path);
  for (size_t i = 0; i < rows->size(); ++i) {
    if (const Status added = add_rate(path, i, (*rows)[i], saved.rates); !added) return fail_with(added);
  }
  return saved;
}

Status write_cuda_rates(const std::string& path, const CudaDeviceKey& device, const cuda::Rates& rates) {
  Json rows = Json::array();
  for (const auto& [name, rate] : rates.kernels) {
    Json row{{"kernel", name}};
    if (kind_of(name) == Kind::gemv)
      row[kBytes] = rate.bytes_per_second;
    else
      row[kPanel] = rate.panel_seconds;
    if (rate.power_seconds > 0) row[kPower] = rate.power_seconds;
    row[kFixed] = rate.fixed_seconds;
    rows.push_back(std::move(row));
  }
  const Json document{
      {"octalane_cuda_rates", kVersion},
      {"device",
       {{"name", device.name}, {"capability", device.capability}, {"multiprocessors", device.multiprocessors}}},
      {"memory_bytes_per_second", rates.memory_bytes_per_second},
      {"kernels", std::move(rows)}};
  const std::string text = document.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
  std::error_code failed;  // create() then says what is wrong
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), failed);
  Expected<OutputFile> file = OutputFile::create(path);
  if (!file) return fail_with(file);
  if (const Status written = file->write(std::as_bytes(std::span(text))); !written) return written;
  return file->commit();
}

}  // namespace octalane
