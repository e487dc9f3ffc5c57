// octalane: parses the command line, runs one subcommand, and keeps the contract of exit codes and errors: 0 on
// success, 2 on a usage error, 1 on any other, with one line on stderr.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>

#include "cli/command.h"
#include "cli/terminal.h"
#include "core/ablation.h"

namespace octalane::cli {
namespace {

constexpr int kFailed = 1;
constexpr int kUsage = 2;

int report(int exit_code, std::string message) {
  for (char& c : message) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) c = ' ';
  }
  std::fflush(stdout);
  fmt::print(stderr, "octalane: error: {}\n", message);
  return exit_code;
}

/// Buffered output can fail as late as here.
int finish(int exit_code) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) return exit_code;
  return report(kFailed, fmt::format("standard output: {}", std::strerror(errno)));
}

/// What the parser says, and where to look further.
std::string usage_message(const CLI::App& app, const CLI::ParseError& error) {
  std::string path = "octalane";
  const CLI::App* at = &app;
  while (!at->get_subcommands().empty()) {
    at = at->get_subcommands().back();
    path += " " + at->get_name();
  }
  std::string message = error.what();
  if (at->get_require_subcommand_min() > 0) {
    const std::vector<std::string> rest = at->remaining();
    message = rest.empty() ? "wanted a command" : fmt::format("{} is not a command", rest.front());
  }
  return fmt::format("{} (see {} --help)", message, path);
}

int run(int argc, char** argv) {
  CLI::App app("octalane runs quantized language models, and multiplies by quantized weights", "octalane");
  app.require_subcommand(1);
  app.set_version_flag("--version", kAblation == Ablation::none
                                        ? OCTALANE_VERSION
                                        : fmt::format("{}, ablation build: {}", OCTALANE_VERSION, name(kAblation)));
  CLI::App* bench = app.add_subcommand("bench", "Measure speed");
  bench->require_subcommand(1);
  const std::vector<Command> commands{run_command(app),    inspect_command(app),       plan_command(app),
                                      matmul_command(app), quantize_command(app),      synth_command(app),
                                      ppl_command(app),    gate_command(app),          kernels_command(app),
                                      probe_command(app),  bench_gemm_command(*bench), bench_model_command(*bench)};
  try {
    app.parse(argc, argv);
  } catch (const CLI::CallForHelp&) {
    fmt::print("{}", app.help());
    return finish(0);
  } catch (const CLI::CallForVersion& version) {
    fmt::print("{}\n", version.what());
    return finish(0);
  } catch (const CLI::ParseError& error) {
    return report(kUsage, usage_message(app, error));
  }
  for (const Command& command : commands) {
    if (!command.app->parsed()) continue;
    const Expected<int> result = command.run();
    return result ? finish(*result) : report(kFailed, result.error().message);
  }
  return report(kUsage, "no command (see octalane --help)");
}

}  // namespace
}  // namespace octalane::cli

int main(int argc, char** argv) {
  using octalane::cli::report;
  octalane::cli::install_last_resorts();
  try {
    return octalane::cli::run(argc, argv);
  } catch (const std::bad_alloc&) {
    return report(octalane::cli::kFailed, "out of memory");
  } catch (const std::exception& error) {
    return report(octalane::cli::kFailed, error.what());
  }
}
