#include "cli/probe_cuda.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/cuda_rotation.h"
#include "cli/machine.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "cuda/probe.h"

namespace octalane::cli {
namespace {

using cuda::InstructionRate;
using cuda::LoopRate;

constexpr int kDrains[] = {32, 128, 256};

Json device_json(const cuda::DeviceInfo& device) {
  return {{"name", device.name},
          {"compute_capability", cuda::capability_text(device.capability)},
          {"multiprocessors", device.multiprocessors},
          {"clock_mhz", device.clock_mhz},
          {"memory_bytes", device.memory_bytes},
          {"memory_clock_mhz", device.memory_clock_mhz},
          {"memory_bus_bits", device.memory_bus_bits},
          {"l2_bytes", device.l2_bytes},
          {"shared_bytes_per_block", device.shared_bytes_per_block},
          {"driver_cuda_version", cuda::cuda_version_text(device.driver_version)}};
}

/// Operations of a multiprocessor in one clock: what is left when power and clock are taken out.
double ops_per_clock(const LoopRate& rate, int multiprocessors) {
  std::vector<double> ops;
  for (size_t i = 0; i < rate.tops.size(); ++i) {
    ops.push_back(1e3 * rate.tops[i] / rate.clock_ghz[i] / multiprocessors);
  }
  return median(std::move(ops));
}

const LoopRate& drained_or_pure(const InstructionRate& rate) {
  const auto drained = rate.drained.find(32);
  return drained == rate.drained.end() ? rate.pure : drained->second;
}

Json rate_json(const InstructionRate& rate, int multiprocessors) {
  Json drains, drain_clocks;
  for (const int columns : kDrains) {
    const auto drained = rate.drained.find(columns);
    const bool has = drained != rate.drained.end();
    drains[fmt::format("{}", columns)] = has ? spread_json(drained->second.tops) : Json();
    drain_clocks[fmt::format("{}", columns)] = has ? Json(median(drained->second.clock_ghz)) : Json();
  }
  return {{"instruction", rate.instruction},
          {"ptx", rate.ptx},
          {"isa", rate.isa},
          {"lane", rate.lane},
          {"element", rate.element},
          {"tops", spread_json(rate.pure.tops)},
          {"clock_ghz", median(rate.pure.clock_ghz)},
          {"ops_per_clock_and_multiprocessor", ops_per_clock(rate.pure, multiprocessors)},
          {"with_drain_tops", median(drained_or_pure(rate).tops)},
          {"drains", std::move(drains)},
          {"drain_clock_ghz", std::move(drain_clocks)},
          {"emulated", rate.emulated},
          {"samples_tops", rate.pure.tops}};
}

/// The fastest instruction that `serves` is true of; null when there is none.
template <class Serves>
const InstructionRate* fastest(const std::vector<InstructionRate>& rates, Serves serves) {
  const InstructionRate* best = nullptr;
  for (const InstructionRate& rate : rates) {
    if (serves(rate) && (best == nullptr || median(rate.pure.tops) > median(best->pure.tops))) best = &rate;
  }
  return best;
}

bool is_wide(const InstructionRate& rate) { return rate.lane == "bf16" || rate.lane == "f16"; }

/// Medians of the ratios within each round.
Json ratio_json(const InstructionRate& a, const InstructionRate& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.pure.tops.size(); ++i) ratios.push_back(a.pure.tops[i] / b.pure.tops[i]);
  return {{"lane", a.lane},
          {"over", b.lane},
          {"ratio", median(std::move(ratios))},
          {"instruction", a.instruction},
          {"isa", a.isa},
          {"over_instruction", b.instruction},
          {"over_isa", b.isa}};
}

/// int8 over the 16-bit lane, each by its fastest instruction; then each 8-bit instruction over the fastest 16-bit one
/// of its family ("wgmma.s8" over "wgmma.bf16").
Json ratios_json(const std::vector<InstructionRate>& rates) {
  Json ratios = Json::array();
  const InstructionRate* s8 = fastest(rates, [](const InstructionRate& rate) { return rate.lane == "s8"; });
  const InstructionRate* wide = fastest(rates, is_wide);
  if (s8 != nullptr && wide != nullptr) ratios.push_back(ratio_json(*s8, *wide));
  const auto family = [](const InstructionRate& rate) {
    return rate.instruction.substr(0, rate.instruction.find('.'));
  };
  for (const InstructionRate& narrow : rates) {
    if (is_wide(narrow)) continue;
    const InstructionRate* beside =
        fastest(rates, [&](const InstructionRate& rate) { return is_wide(rate) && family(rate) == family(narrow); });
    if (beside != nullptr && (&narrow != s8 || beside != wide)) ratios.push_back(ratio_json(narrow, *beside));
  }
  return ratios;
}

Json memory_json(const std::vector<cuda::MemoryRate>& rates) {
  Json all = Json::array();
  for (const cuda::MemoryRate& rate : rates) {
    all.push_back({{"bytes", rate.bytes}, {"gbps", spread_json(rate.gbps)}, {"samples_gbps", rate.gbps}});
  }
  return all;
}

std::string tops_text(const Json& tops) { return tops.is_null() ? "" : fmt::format("{:.1f}", tops.get<double>()); }

void print_state(const char* when, const Json& state) {
  const auto text = [](const Json& value) {
    return value.is_null() ? "?" : fmt::format("{:.0f}", value.get<double>());
  };
  fmt::print("{}: SM clock {} MHz, {} of {} W, {} C\n", when, text(state["sm_clock_mhz"]), text(state["power_watts"]),
             text(state["power_limit_watts"]), text(state["temperature_celsius"]));
}

void print_rates(const Json& rates) {
  constexpr auto kRight = Table::Align::right;
  Table table({{"instruction"},
               {"ISA"},
               {"lane"},
               {"TOP/s", kRight},
               {"min", kRight},
               {"max", kRight},
               {"GHz", kRight},
               {"ops/clk/SM", kRight},
               {"drain 32", kRight},
               {"drain 128", kRight},
               {"drain 256", kRight},
               {"note"}});
  for (const Json& rate : rates) {
    const auto drain = [&](const char* columns) {
      const Json& spread = rate["drains"][columns];
      return spread.is_null() ? std::string() : tops_text(spread["median"]);
    };
    table.add({rate["instruction"].get<std::string>(), rate["isa"].get<std::string>(), rate["lane"].get<std::string>(),
               tops_text(rate["tops"]["median"]), tops_text(rate["tops"]["min"]), tops_text(rate["tops"]["max"]),
               fmt::format("{:.3f}", rate["clock_ghz"].get<double>()),
               fmt::format("{:.0f}", rate["ops_per_clock_and_multiprocessor"].get<double>()), drain("32"), drain("128"),
               drain("256"), rate["emulated"].get<bool>() ? "emulated" : ""});
  }
  fmt::print("{}", table.text());
}

void print_memory(const Json& rates) {
  constexpr auto kRight = Table::Align::right;
  Table table({{"working set", kRight}, {"GB/s", kRight}, {"min", kRight}, {"max", kRight}});
  for (const Json& rate : rates) {
    const Json& gbps = rate["gbps"];
    table.add({fmt::format("{:.1f} MiB", static_cast<double>(rate["bytes"].get<int64_t>()) / (1 << 20)),
               tops_text(gbps["median"]), tops_text(gbps["min"]), tops_text(gbps["max"])});
  }
  fmt::print("{}", table.text());
}

void print_people(const Json& document, const cuda::DeviceInfo& device) {
  fmt::print("{}\n", cuda::describe(device));
  for (const Json& ratio : document["ratios"]) {
    fmt::print("{} ({}) over {} ({}): {:.2f}\n", ratio["instruction"].get<std::string>(),
               ratio["isa"].get<std::string>(), ratio["over_instruction"].get<std::string>(),
               ratio["over_isa"].get<std::string>(), ratio["ratio"].get<double>());
  }
  fmt::print("\n");
  print_rates(document["rates"]);
  fmt::print("\n");
  print_memory(document["memory_gbps"]);
  fmt::print("\n");
  print_state("before", document["state_before"]);
  print_state("after", document["state_after"]);
}

}  // namespace

Expected<int> probe_cuda(const CommonOptions& options, int repeats, int sample_ms) {
  const Expected<cuda::DriverApi> api = cuda::load_driver();
  if (!api) return fail_with(api);
  const Expected<std::vector<cuda::DeviceInfo>> devices = cuda::list_devices(*api);
  if (!devices) return fail_with(devices);
  if (devices->empty()) return fail("cuda: the driver has no device");
  const Expected<Context> context = make_context(options);
  if (!context) return fail_with(context);

  const InterruptScope scope;
  Progress progress;
  const auto show = [&](int done, int all) {
    progress.show(fmt::format("CUDA: {} %", 100 * done / all));
    return !interrupted();
  };
  const cuda::DeviceInfo& device = devices->front();
  const Expected<cuda::ProbeResult> result =
      cuda::probe(*api, device, {.repeats = repeats, .sample_seconds = 1e-3 * sample_ms}, show);
  progress.clear();
  if (interrupted()) return kInterruptedExit;
  if (!result) return fail_with(result);

  Json rates = Json::array(), all_devices = Json::array();
  for (const InstructionRate& rate : result->rates) rates.push_back(rate_json(rate, device.multiprocessors));
  for (const cuda::DeviceInfo& each : *devices) all_devices.push_back(device_json(each));
  const Json document{{"command", command_line()},
                      {"machine", machine_json(*context)},
                      {"devices", std::move(all_devices)},
                      {"device", device.index},
                      {"repeats", repeats},
                      {"sample_ms", sample_ms},
                      {"checked_loops", result->checked_loops},
                      {"state_before", state_json(result->before)},
                      {"state_after", state_json(result->after)},
                      {"rates", std::move(rates)},
                      {"ratios", ratios_json(result->rates)},
                      {"memory_gbps", memory_json(result->memory)}};
  if (options.json) {
    print_json(document);
  } else {
    print_people(document, device);
  }
  return 0;
}

}  // namespace octalane::cli
