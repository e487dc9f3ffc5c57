// What the subcommands share: their shape, JSON output, tensors of a file.
#pragma once

#include <cstdint>
#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "cli/flags.h"
#include "cli/rates.h"
#include "core/status.h"
#include "formats/format.h"
#include "linear/linear.h"

namespace octalane::cli {

using Json = nlohmann::ordered_json;

/// A declared subcommand. `run` is called after parsing, when `app` was the one asked for; it returns the exit code of
/// a success (0 but for an interrupted run).
struct Command {
  CLI::App* app = nullptr;
  std::function<Expected<int>()> run;
};

// One file each.
Command inspect_command(CLI::App& parent);
Command run_command(CLI::App& parent);
Command plan_command(CLI::App& parent);
Command matmul_command(CLI::App& parent);
Command quantize_command(CLI::App& parent);
Command synth_command(CLI::App& parent);
Command ppl_command(CLI::App& parent);
Command gate_command(CLI::App& parent);
Command kernels_command(CLI::App& parent);
Command probe_command(CLI::App& parent);
Command bench_gemm_command(CLI::App& bench);
Command bench_model_command(CLI::App& bench);

/// The machine that the flags ask for. An instruction set that this machine lacks is an error.
Expected<Context> make_context(const CommonOptions& options);
/// The same with plans from the rates that --rates names, measured as far as these formats need them.
Expected<Context> make_context(const CommonOptions& options, const std::vector<const Format*>& formats,
                               Unmeasured unmeasured = Unmeasured::measure,
                               std::shared_ptr<const LaneRules> rules = nullptr);
/// The formats of a file's matrices, each once.
std::vector<const Format*> matrix_formats(const Checkpoint& file);

/// The one document of --json. Bytes that are no UTF-8 become U+FFFD; NaN and infinities become null.
void print_json(const Json& document);

/// Sorts a copy. Precondition for median: not empty.
double median(std::vector<double> samples);
Json spread_json(const std::vector<double>& samples);  ///< {min, median, max}

/// The format of a tensor, or an error that names the tensor and its type.
Expected<const Format*> tensor_format(const Checkpoint& file, const CheckpointTensor& tensor);

/// Weight rows to check so that it costs about this many multiplications: all of them, or at least 16.
int64_t rows_to_check(const Linear& linear, int64_t tokens, int64_t multiplications);

/// True when `name` matches one of the patterns of * and ?.
bool matches_any(std::string_view name, const std::vector<std::string>& patterns);

}  // namespace octalane::cli
