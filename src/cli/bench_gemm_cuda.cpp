#include "cli/bench_gemm_cuda.h"

#include <fmt/format.h>

#include "cli/commit.h"
#include "cli/cuda_products.h"
#include "cli/machine.h"
#include "cli/random_tokens.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "cuda/probe.h"

namespace octalane::cli {
namespace {

void print_cell(const Json& cell) {
  Table table({{"kernel"},
               {"us", Table::Align::right},
               {"TOP/s", Table::Align::right},
               {"of cuBLASLt bf16", Table::Align::right},
               {"GB/s of weights", Table::Align::right},
               {"kernel error", Table::Align::right},
               {"total error", Table::Align::right}});
  for (const Json& arm : cell["arms"]) {
    const auto number = [&arm](const char* key, const char* form, double factor = 1) {
      return arm.contains(key) ? fmt::format(fmt::runtime(form), factor * arm[key].get<double>()) : std::string();
    };
    table.add({arm["name"].get<std::string>(),
               fmt::format("{:.2f}", 1e3 * arm["samples"]["ms"]["median"].get<double>()), number("tops", "{:.1f}"),
               number("over_cublaslt_bf16", "{:.2f}"), number("weight_gbps", "{:.0f}"),
               number("kernel_error", "{:.1e}"), number("total_error", "{:.1e}")});
  }
  fmt::print("{}, {} tokens x {} x {}\n{}", cell["format"].get<std::string>(), cell["tokens"].get<int64_t>(),
             cell["rows"].get<int64_t>(), cell["cols"].get<int64_t>(), table.text());
}

/// What reading memory reaches, by working set.
Expected<Json> memory_rates(const cuda::DriverApi& api, const cuda::DeviceInfo& device) {
  const Expected<cuda::ProbeResult> probed = cuda::probe(api, device, {.repeats = 3, .sample_seconds = 0.01});
  if (!probed) return fail_with(probed);
  Json rates = Json::array();
  for (const cuda::MemoryRate& rate : probed->memory)
    rates.push_back({{"bytes", rate.bytes}, {"gbps", median(rate.gbps)}});
  return rates;
}

}  // namespace

Expected<int> bench_gemm_cuda(const CudaGemmOptions& options) {
  Expected<cuda::DriverApi> api = cuda::load_driver();
  if (!api) return fail_with(api);
  Expected<std::vector<cuda::DeviceInfo>> devices = cuda::list_devices(*api);
  if (!devices) return fail_with(devices);
  if (devices->empty()) return fail("cuda: the driver lists no device");
  const cuda::DeviceInfo& device = devices->front();
  Expected<Json> memory;  // in the document only
  if (options.json) memory = memory_rates(*api, device);
  if (!memory) return fail_with(memory);
  Expected<cuda::Session> session = cuda::Session::open(*api, device);
  if (!session) return fail_with(session);
  Expected<cuda::LinearKernels> kernels = cuda::LinearKernels::load(*session);
  if (!kernels) return fail_with(kernels);
  Expected<cuda::Stream> stream = session->stream();
  if (!stream) return fail_with(stream);
  const Expected<LtApi> lt = load_cublaslt();
  RotationOptions rotation{.rounds = options.rounds, .seed = options.seed};
  rotation.progress = [](int, int) { return !interrupted(); };
  Json cells = Json::array();
  const InterruptScope scope;
  Progress progress;
  for (const std::string& format : options.formats) {
    for (const int64_t tokens : options.tokens) {
      if (interrupted()) break;
      progress.show(fmt::format("{}: {} x {} x {}", format, tokens, options.rows, options.cols));
      ProductsOptions problem{.format = format, .tokens = tokens, .rows = options.rows, .cols = options.cols};
      if (options.lane != "auto") problem.lanes = {*staged_type_from_name(options.lane)};
      problem.kernel = options.kernel;
      problem.seed = options.seed;
      problem.activations = options.activations;
      problem.rotation = rotation;
      Expected<Json> cell = products_bench(*kernels, *stream, lt ? &*lt : nullptr, problem);
      if (!cell && interrupted()) break;  // cells that are complete are kept
      if (!cell) return fail_with(cell);
      progress.clear();
      if (!options.json) print_cell(*cell);
      cells.push_back(std::move(*cell));
    }
  }
  progress.clear();
  if (options.json) {
    print_json({{"command", command_line()},
                {"device", describe(device)},
                {"commit", kCommit},
                {"uncommitted_changes", kUncommittedChanges},
                {"seed", options.seed},
                {"activations", options.activations},
                {"input", describe_input(options.activations)},
                {"timed", "the product; weights resident, activations staged; operands in rotation beyond L2"},
                {"without_cublaslt", lt ? Json() : Json(lt.error().message)},
                {"memory", std::move(*memory)},
                {"rotation", rotation_json(rotation)},
                {"cells", std::move(cells)},
                {"interrupted", interrupted()}});
  } else if (!lt) {
    fmt::print("Without cuBLASLt: {}\n", lt.error().message);
  }
  return interrupted() ? kInterruptedExit : 0;
}

}  // namespace octalane::cli
