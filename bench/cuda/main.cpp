// Products on a CUDA device: every kernel that serves a format, on the shapes asked for, beside the vendor's library on
// dense operands; additive codebooks beside decoding again for each 16 tokens; and what memory and instructions reach
// in the same run. Prints tables, writes a receipt.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cstdio>

#include "cli/commit.h"
#include "cli/table.h"
#include "cuda/additive.h"
#include "cuda/probe.h"
#include "cuda/products.h"
#include "files/output_file.h"

namespace octalane::bench {
namespace {

using cli::Json;

struct Options {
  std::vector<std::string> formats, shapes, lanes;
  bool additive = false, variants = false, no_peers = false, burst = false, memory = false;
  int rounds = 5, promote = 512;
  std::string out, cublaslt;
};

/// "2048x14336x4096": tokens, rows, columns.
Expected<ProductsOptions> parse_shape(const std::string& text) {
  ProductsOptions options;
  char rest = 0;
  if (std::sscanf(text.c_str(), "%ldx%ldx%ld%c", &options.tokens, &options.rows, &options.cols, &rest) != 3 ||
      options.tokens < 1 || options.rows < 1 || options.cols < 1) {
    return fail("--shape: wanted TOKENSxROWSxCOLUMNS, got {}", text);
  }
  return options;
}

void print_cell(const Json& cell) {
  fmt::print("\n{}: {} tokens x {} rows x {} columns\n", cell["format"].get<std::string>(),
             cell["tokens"].get<int64_t>(), cell["rows"].get<int64_t>(), cell["cols"].get<int64_t>());
  for (const Json& arm : cell["arms"]) {
    const double ratio = arm.value("over_cublaslt_bf16", 0.0);
    fmt::print("  {:<62}{:9.2f} us {:7.0f} TOP/s {:6.2f}x", arm["name"].get<std::string>(),
               1e3 * arm["samples"]["ms"]["median"].get<double>(), arm["tops"].get<double>(), ratio);
    if (arm.contains("kernel_error")) {
      fmt::print("  {:6.0f} GB/s, errors {:.1e} {:.1e}", arm["weight_gbps"].get<double>(),
                 arm["kernel_error"].get<double>(), arm["total_error"].get<double>());
    }
    fmt::print("\n");
  }
}

Expected<Json> memory_rate(const cuda::DriverApi& api, const cuda::DeviceInfo& device) {
  const Expected<cuda::ProbeResult> probed = cuda::probe(api, device, {.repeats = 3, .sample_seconds = 0.01});
  if (!probed) return fail_with(probed);
  Json rates = Json::array();
  for (const cuda::MemoryRate& rate : probed->memory) {
    rates.push_back({{"bytes", rate.bytes}, {"gbps", cli::median(rate.gbps)}});
    fmt::print("reading {:>14} bytes: {:6.0f} GB/s\n", rate.bytes, cli::median(rate.gbps));
  }
  return rates;
}

Status save(const Options& options, const Json& receipt) {
  if (options.out.empty()) return {};
  Expected<OutputFile> file = OutputFile::create(options.out);
  if (!file) return fail_with(file);
  const std::string text = receipt.dump(1) + "\n";
  if (const Status written = file->write(std::as_bytes(std::span(text))); !written) return written;
  return file->commit();
}

Status run(const Options& options) {
  Expected<cuda::DriverApi> api = cuda::load_driver();
  if (!api) return fail_with(api);
  Expected<std::vector<cuda::DeviceInfo>> devices = cuda::list_devices(*api);
  if (!devices) return fail_with(devices);
  if (devices->empty()) return fail("cuda: no device");
  const cuda::DeviceInfo& device = devices->front();
  fmt::print("{}\n", describe(device));
  Json receipt{{"bench", "cuda_products"},
               {"device", describe(device)},
               {"commit", cli::kCommit},
               {"uncommitted_changes", cli::kUncommittedChanges}};
  if (options.memory) {
    Expected<Json> rates = memory_rate(*api, device);
    if (!rates) return fail_with(rates);
    receipt["memory"] = *rates;
  }
  Expected<cuda::Session> session = cuda::Session::open(*api, device);
  if (!session) return fail_with(session);
  Expected<cuda::LinearKernels> kernels = cuda::LinearKernels::load(*session);
  if (!kernels) return fail_with(kernels);
  Expected<cuda::Stream> stream = session->stream();
  if (!stream) return fail_with(stream);
  Expected<LtApi> lt = load_cublaslt(options.cublaslt);
  if (!lt) fmt::print("without the vendor's products: {}\n", lt.error().message);
  RotationOptions rotation{.rounds = options.rounds, .burst = options.burst};
  receipt["rotation"] = rotation_json(rotation);
  receipt["cells"] = Json::array();
  for (const std::string& format : options.formats) {
    for (const std::string& shape : options.shapes) {
      Expected<ProductsOptions> problem = parse_shape(shape);
      if (!problem) return fail_with(problem);
      problem->format = format;
      problem->promote_cols = options.promote;
      problem->peers = !options.no_peers;
      problem->rotation = rotation;
      for (const std::string& lane : options.lanes) {
        const std::optional<StagedType> staged = staged_type_from_name(lane);
        if (!staged) return fail("--lanes: {}: no such lane", lane);
        problem->lanes.push_back(*staged);
      }
      Expected<Json> cell = products_bench(*kernels, *stream, lt ? &*lt : nullptr, *problem);
      if (!cell) return fail_with(cell);
      print_cell(*cell);
      std::fflush(stdout);
      receipt["cells"].push_back(std::move(*cell));
      if (const Status saved = save(options, receipt); !saved) return saved;
    }
  }
  if (options.additive) {
    receipt["additive"] = Json::array();
    for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{14336, 4096}, {4096, 14336}}) {
      Expected<Json> table = additive_bench(
          *session, *stream, {.rows = rows, .cols = cols, .variants = options.variants, .rotation = rotation});
      if (!table) return fail_with(table);
      fmt::print("\nadditive, {} x {}\n{}\n", rows, cols, table->dump(1).substr(0, 6000));
      receipt["additive"].push_back(std::move(*table));
      if (const Status saved = save(options, receipt); !saved) return saved;
    }
  }
  return save(options, receipt);
}

}  // namespace
}  // namespace octalane::bench

int main(int argc, char** argv) {
  octalane::bench::Options options;
  CLI::App app{"Products of compressed weights on a CUDA device"};
  app.add_option("--format", options.formats, "Formats of the weights")->delimiter(',');
  app.add_option("--shape", options.shapes, "TOKENSxROWSxCOLUMNS")->delimiter(',');
  app.add_option("--lanes", options.lanes, "Lanes, by default all")->delimiter(',');
  app.add_option("--rounds", options.rounds, "Rounds over all kernels, in an order drawn anew")
      ->check(CLI::PositiveNumber);
  app.add_option("--promote", options.promote, "f8.row: columns that the tensor cores sum by themselves");
  app.add_option("--out", options.out, "Receipt");
  app.add_option("--cublaslt", options.cublaslt, "The vendor's library; by default looked for");
  app.add_flag("--no-peers", options.no_peers, "Without the vendor's products");
  app.add_flag("--burst", options.burst, "Also from an idle device");
  app.add_flag("--memory", options.memory, "First what reading memory reaches");
  app.add_flag("--additive", options.additive, "Also additive codebooks");
  app.add_flag("--variants", options.variants, "Additive: also other ways to widen codewords");
  CLI11_PARSE(app, argc, argv);
  const octalane::Status done = octalane::bench::run(options);
  if (done) return 0;
  fmt::print(stderr, "cuda_bench: error: {}\n", done.error().message);
  return 1;
}
