// Additive codebooks on a CUDA device: products that decode once beside products that decode again for each 16 tokens.
#include <fmt/format.h>

#include <CLI/CLI.hpp>

#include "cli/commit.h"
#include "cli/table.h"
#include "cuda/additive.h"
#include "files/output_file.h"

namespace octalane::bench {
namespace {

using cli::Json;

struct Options {
  int rounds = 5;
  bool variants = false;
  std::string out;
};

void print_table(const Json& table) {
  cli::Table rows({{"tokens", cli::Table::Align::right},
                   {"arm"},
                   {"kernel"},
                   {"us", cli::Table::Align::right},
                   {"TFLOP/s", cli::Table::Align::right},
                   {"reuse over frozen", cli::Table::Align::right}});
  for (const Json& cell : table["tokens"]) {
    for (const Json& arm : cell["arms"]) {
      const bool first = &arm == &cell["arms"].front();
      rows.add({fmt::format("{}", cell["tokens"].get<int64_t>()), arm["name"].get<std::string>(),
                arm["kernel"].get<std::string>(), fmt::format("{:.1f}", 1e3 * arm["ms"]["median"].get<double>()),
                fmt::format("{:.0f}", arm["tflops"].get<double>()),
                first ? fmt::format("{:.2f}", cell["reuse_over_fastest_frozen"].get<double>()) : ""});
    }
  }
  fmt::print("{} x {}\n{}", table["rows"].get<int64_t>(), table["cols"].get<int64_t>(), rows.text());
}

Status save(const std::string& path, const Json& receipt) {
  Expected<OutputFile> file = OutputFile::create(path);
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
  Expected<cuda::Session> session = cuda::Session::open(*api, devices->front());
  if (!session) return fail_with(session);
  Expected<cuda::Stream> stream = session->stream();
  if (!stream) return fail_with(stream);
  Json receipt{{"bench", "cuda_additive"},
               {"device", describe(devices->front())},
               {"commit", cli::kCommit},
               {"uncommitted_changes", cli::kUncommittedChanges},
               {"additive", Json::array()}};
  for (const auto& [rows, cols] : {std::pair<int64_t, int64_t>{14336, 4096}, {4096, 14336}}) {
    Expected<Json> table = additive_bench(
        *session, *stream,
        {.rows = rows, .cols = cols, .variants = options.variants, .rotation = {.rounds = options.rounds}});
    if (!table) return fail_with(table);
    print_table(*table);
    receipt["additive"].push_back(std::move(*table));
    if (options.out.empty()) continue;
    if (const Status saved = save(options.out, receipt); !saved) return saved;
  }
  return {};
}

}  // namespace
}  // namespace octalane::bench

int main(int argc, char** argv) {
  octalane::bench::Options options;
  CLI::App app{"Additive codebooks on a CUDA device, decoded once and again"};
  app.add_option("--rounds", options.rounds, "Rounds over all kernels, in an order drawn anew")
      ->check(CLI::PositiveNumber);
  app.add_option("--out", options.out, "Receipt");
  app.add_flag("--variants", options.variants, "Also other ways to widen codewords");
  CLI11_PARSE(app, argc, argv);
  const octalane::Status done = octalane::bench::run(options);
  if (done) return 0;
  fmt::print(stderr, "cuda_additive_bench: error: {}\n", done.error().message);
  return 1;
}
