// probe: what the instructions and the memory of this machine reach.
#include <fmt/format.h>

#include <algorithm>
#include <array>

#include "cli/command.h"
#include "cli/machine.h"
#include "cli/peaks.h"
#include "cli/probe_cuda.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "core/parallel.h"
#include "kernels/registry.h"
#include "probe/instructions.h"
#include "probe/kernel_rates.h"
#include "probe/memory.h"

namespace octalane::cli {
namespace {

/// Formats whose kernels are measured unless others are asked for.
std::vector<std::string> gguf_formats() {
  std::vector<std::string> names = random_formats();
  std::erase_if(names, [](const std::string& name) { return find_format(name)->ggml_type < 0; });
  return names;
}

struct Options {
  CommonOptions common;
  int repeats = 7;
  int sample_ms = 10;
  std::vector<std::string> formats = gguf_formats();
  std::string output;
};

std::string_view name(Lane lane) {
  constexpr std::string_view kNames[] = {"bf16", "f16", "s8", "f8"};
  return kNames[static_cast<size_t>(lane)];
}

Json drain_json(const std::optional<LoopRate>& rate) { return rate ? Json(rate->median()) : Json(); }

Json rate_json(const InstructionRate& rate) {
  return {
      {"instruction", rate.instruction},
      {"isa", rate.isa},
      {"lane", name(rate.lane)},
      {"element", octalane::name(rate.element)},
      {"threads", rate.threads},
      {"tops", spread_json(rate.registers.tops)},
      {"clock_ghz", rate.registers.clock_ghz},
      {"loaded_tops", rate.loaded.median()},
      {"loaded_spread", spread_json(rate.loaded.tops)},
      {"loaded_clock_ghz", rate.loaded.clock_ghz},
      {"with_drain_tops", rate.drain_32 ? rate.drain_32->median() : rate.loaded.median()},
      {"drains",
       {{"32", drain_json(rate.drain_32)}, {"256", drain_json(rate.drain_256)}, {"row", drain_json(rate.drain_row)}}},
      {"emulated", false},
      {"samples_tops", rate.registers.tops}};
}

/// The fastest instruction of the lanes that `serves` is true of, on one thread; null when there is none.
template <class Serves>
const InstructionRate* fastest(const std::vector<InstructionRate>& rates, Serves serves) {
  const InstructionRate* best = nullptr;
  for (const InstructionRate& rate : rates) {
    if (rate.threads != 1 || !serves(rate)) continue;
    if (best == nullptr || rate.registers.median() > best->registers.median()) best = &rate;
  }
  return best;
}

/// Medians of the ratios within each round.
double ratio(const LoopRate& a, const LoopRate& b) {
  std::vector<double> ratios;
  for (size_t i = 0; i < a.tops.size(); ++i) ratios.push_back(a.tops[i] / b.tops[i]);
  return median(std::move(ratios));
}

Json ratio_json(const InstructionRate& a, const InstructionRate& b) {
  return {{"lane", name(a.lane)},
          {"over", name(b.lane)},
          {"ratio", ratio(a.registers, b.registers)},
          {"loaded_ratio", ratio(a.loaded, b.loaded)},
          {"instruction", a.instruction},
          {"isa", a.isa},
          {"over_instruction", b.instruction},
          {"over_isa", b.isa}};
}

/// int8 over the 16-bit lane, each by its fastest instruction; then every instruction over the next slower one.
Json ratios_json(const std::vector<InstructionRate>& rates) {
  Json ratios = Json::array();
  const InstructionRate* s8 = fastest(rates, [](const InstructionRate& rate) { return rate.lane == Lane::s8; });
  const InstructionRate* wide = fastest(rates, [](const InstructionRate& rate) { return rate.lane != Lane::s8; });
  if (s8 != nullptr && wide != nullptr) ratios.push_back(ratio_json(*s8, *wide));
  std::vector<const InstructionRate*> order;
  for (const InstructionRate& rate : rates) {
    if (rate.threads == 1) order.push_back(&rate);
  }
  std::ranges::stable_sort(order, [](const InstructionRate* a, const InstructionRate* b) {
    return a->registers.median() > b->registers.median();
  });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1] != s8 || order[i] != wide) ratios.push_back(ratio_json(*order[i - 1], *order[i]));
  }
  return ratios;
}

/// The first format of each spec: kernels cannot tell formats of one spec apart.
std::vector<const Format*> distinct_formats() {
  std::vector<const Format*> distinct;
  for (const Format* format : formats()) {
    const auto same = [&](const Format* earlier) { return earlier->spec == format->spec; };
    if (std::ranges::none_of(distinct, same)) distinct.push_back(format);
  }
  return distinct;
}

Json kernels_json(const Rates& rates) {
  Json all = Json::array();
  for (const Format* format : distinct_formats()) {
    for (const KernelRate& rate : rates.all()) {
      if (rate.weights != format->spec) continue;
      Json points = Json::array();
      for (const RatePoint& point : rate.points) {
        points.push_back({{"tokens", point.tokens},
                          {"seconds_per_weight", point.seconds_per_weight},
                          {"tops", 2e-12 * static_cast<double>(point.tokens) / point.seconds_per_weight}});
      }
      all.push_back({{"kernel", octalane::name(*rate.kernel)},
                     {"staged", octalane::name(rate.kernel->staged)},
                     {"format", format->name},
                     {"points", std::move(points)}});
    }
  }
  return all;
}

/// Which kernel each lane takes from how many tokens on: [{format, lane, kernels: [{tokens, kernel}]}].
Json crossovers_json(const Context& context, const Rates& rates) {
  Json all = Json::array();
  for (const Format* format : distinct_formats()) {
    for (const StagedTypeInfo& lane : kStagedTypes) {
      PlanInputs inputs = context.plan_inputs();
      inputs.rates = &rates;
      inputs.lane = lane.type;
      Json kernels = Json::array();
      const Kernel* last = nullptr;
      for (int64_t tokens = 1; tokens <= kMostRateTokens; ++tokens) {
        const Kernel* kernel = choose_kernel({tokens, kRateRows, kRateCols, format->spec, {}}, inputs).kernel;
        if (kernel == last || kernel == nullptr || rates.find(*kernel, format->spec) == nullptr) continue;
        kernels.push_back({{"tokens", tokens}, {"kernel", octalane::name(*kernel)}});
        last = kernel;
      }
      if (last == nullptr) continue;
      all.push_back({{"format", format->name}, {"lane", lane.name}, {"kernels", std::move(kernels)}});
    }
  }
  return all;
}

std::string tops_text(const Json& tops) { return tops.is_null() ? "" : fmt::format("{:.3f}", tops.get<double>()); }

std::string bytes_text(int64_t bytes) {
  return bytes >= 1 << 20 ? fmt::format("{} MiB", bytes >> 20) : fmt::format("{} KiB", bytes >> 10);
}

void print_instructions(const Json& rates) {
  constexpr auto kRight = Table::Align::right;
  Table table({{"instruction"},
               {"ISA"},
               {"lane"},
               {"threads", kRight},
               {"TOP/s", kRight},
               {"min", kRight},
               {"max", kRight},
               {"GHz", kRight},
               {"loaded", kRight},
               {"GHz", kRight},
               {"drain 32", kRight},
               {"drain 256", kRight},
               {"drain row", kRight}});
  for (const Json& rate : rates) {
    table.add({rate["instruction"].get<std::string>(), rate["isa"].get<std::string>(), rate["lane"].get<std::string>(),
               fmt::format("{}", rate["threads"].get<int>()), tops_text(rate["tops"]["median"]),
               tops_text(rate["tops"]["min"]), tops_text(rate["tops"]["max"]),
               fmt::format("{:.2f}", rate["clock_ghz"].get<double>()), tops_text(rate["loaded_tops"]),
               fmt::format("{:.2f}", rate["loaded_clock_ghz"].get<double>()), tops_text(rate["drains"]["32"]),
               tops_text(rate["drains"]["256"]), tops_text(rate["drains"]["row"])});
  }
  fmt::print("{}", table.text());
}

void print_memory(const Json& rates) {
  constexpr auto kRight = Table::Align::right;
  Table table({{"read per thread", kRight}, {"threads", kRight}, {"GB/s", kRight}, {"min", kRight}, {"max", kRight}});
  for (const Json& rate : rates) {
    const Json& gbps = rate["gbps"];
    table.add({bytes_text(rate["bytes_per_thread"].get<int64_t>()), fmt::format("{}", rate["threads"].get<int>()),
               fmt::format("{:.1f}", gbps["median"].get<double>()), fmt::format("{:.1f}", gbps["min"].get<double>()),
               fmt::format("{:.1f}", gbps["max"].get<double>())});
  }
  fmt::print("{}", table.text());
}

void print_people(const Json& document) {
  print_instructions(document["rates"]);
  fmt::print("\n");
  for (const Json& ratio : document["ratios"]) {
    fmt::print("{} ({}) over {} ({}): {:.2f}, loaded {:.2f}\n", ratio["instruction"].get<std::string>(),
               ratio["isa"].get<std::string>(), ratio["over_instruction"].get<std::string>(),
               ratio["over_isa"].get<std::string>(), ratio["ratio"].get<double>(), ratio["loaded_ratio"].get<double>());
  }
  fmt::print("\n");
  print_memory(document["memory_gbps"]);
  fmt::print("\nkernels by tokens\n");
  for (const Json& row : document["crossovers"]) {
    fmt::print("{} {}:", row["format"].get<std::string>(), row["lane"].get<std::string>());
    for (const Json& from : row["kernels"]) {
      fmt::print(" {} {}", from["tokens"].get<int64_t>(), from["kernel"].get<std::string>());
    }
    fmt::print("\n");
  }
}

/// Every lane, or the one asked for.
Rates measure_kernels(const Options& options, const Context& context, const std::function<bool(int, int)>& progress) {
  Rates rates;
  std::vector<const Format*> wanted;
  for (const std::string& format : options.formats) wanted.push_back(find_format(format));
  for (const StagedTypeInfo& lane : kStagedTypes) {
    if (options.common.lane != "auto" && options.common.lane != lane.name) continue;
    measure_missing({context.plan_inputs().isas, lane.type, wanted}, rates, progress);
  }
  return rates;
}

/// What is measured of a CUDA device has no kernels yet, so no rates to save and nothing to force.
Expected<int> probe_on_cuda(const Options& options) {
  const std::pair<const char*, bool> of_kernels[] = {{"--output", !options.output.empty()},
                                                     {"--isa", !options.common.isa.empty()},
                                                     {"--lane", options.common.lane != "auto"}};
  for (const auto& [flag, given] : of_kernels) {
    if (given) return fail("{} is for the kernels of the CPU, --device cuda has none yet", flag);
  }
  return probe_cuda(options.common, options.repeats, options.sample_ms);
}

Expected<int> probe(const Options& options) {
  if (options.common.device == "cuda") return probe_on_cuda(options);
  const Expected<Context> context = make_context(options.common);
  if (!context) return fail_with(context);
  const std::span<const IsaTable* const> isas = context->plan_inputs().isas;
  std::vector<int> threads{1};
  if (context->threads() > 1) threads.push_back(context->threads());

  const InterruptScope scope;
  Progress progress;
  const auto shows = [&](const char* what) {
    return [&progress, what](int done, int all) {
      progress.show(fmt::format("{}: {} %", what, 100 * done / all));
      return !interrupted();
    };
  };
  const double seconds = 1e-3 * options.sample_ms;
  const std::vector<InstructionRate> rates = measure_instructions(
      isas, {.threads = threads, .repeats = options.repeats, .sample_seconds = seconds}, shows("instructions"));
  const std::vector<MemoryRate> memory = measure_memory(isas,
                                                        {.threads = threads,
                                                         .repeats = options.repeats,
                                                         .sample_seconds = seconds,
                                                         .last_level_cache_bytes = last_level_cache_bytes()},
                                                        shows("memory"));
  const Rates kernels = measure_kernels(options, *context, shows("kernels"));
  progress.clear();
  if (interrupted()) return kInterruptedExit;
  if (const Status saved = save_rates(kernels, options.output); !saved) return fail_with(saved);
  Json instructions = Json::array();
  for (const InstructionRate& rate : rates) instructions.push_back(rate_json(rate));
  const Json document{{"command", command_line()},
                      {"machine", machine_json(*context)},
                      {"repeats", options.repeats},
                      {"sample_ms", options.sample_ms},
                      {"rates", std::move(instructions)},
                      {"ratios", ratios_json(rates)},
                      {"memory_gbps", ReadRates::memory_json(memory)},
                      {"kernels", kernels_json(kernels)},
                      {"crossovers", crossovers_json(*context, kernels)}};
  if (options.common.json) {
    print_json(document);
  } else {
    print_people(document);
  }
  return 0;
}

}  // namespace

Command probe_command(CLI::App& parent) {
  Flags flags(parent, "probe", "Measure what the instructions and the memory of this machine reach");
  flags.footer("docs/probe.md says what the figures mean.");
  auto options = std::make_shared<Options>();
  flags.number("--repeats", options->repeats, 1, 1000, "Samples of each figure");
  flags.number("--sample-ms", options->sample_ms, 1, 10000, "Length of a sample in milliseconds");
  flags.choices("--format", options->formats, random_formats(),
                "Weight formats to measure kernels with (default: all of GGUF)", Need::optional);
  flags.text("-o,--output", options->output, "Write the kernels' rates to this file too, for --rates FILE");
  flags.common(options->common, {"cpu", "cuda"});
  return {flags.app(), [options] { return probe(*options); }};
}

}  // namespace octalane::cli
