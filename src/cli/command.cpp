#include "cli/command.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <charconv>
#include <cstdio>

#include "core/parallel.h"
#include "core/staged_type.h"
#include "files/ggml_types.h"
#include "files/quote.h"
#include "kernels/registry.h"

namespace octalane::cli {
namespace {

constexpr int kMostThreads = 1024;

std::string joined(const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, ", ")); }

std::vector<std::string> isa_names() {
  std::vector<std::string> names;
  for (const IsaTable* isa : isa_tables()) names.emplace_back(isa->name);
  return names;
}

std::vector<std::string> writable_formats() {
  std::vector<std::string> names;
  for (const Format* format : formats()) {
    if (format->from_float != nullptr) names.emplace_back(format->name);
  }
  return names;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts(1);
  for (const char c : text) {
    if (c == ',') {
      parts.emplace_back();
    } else {
      parts.back() += c;
    }
  }
  return parts;
}

}  // namespace

CLI::Validator one_of(std::vector<std::string> names, const std::string& description) {
  return CLI::Validator(
      [names = std::move(names)](std::string& text) {
        if (std::ranges::find(names, text) != names.end()) return std::string();
        return fmt::format("wanted one of {}, got {}", joined(names), quote(text));
      },
      description);
}

CLI::Validator lane_name() {
  std::vector<std::string> names{"auto"};
  for (const StagedTypeInfo& row : kStagedTypes) names.emplace_back(row.name);
  return one_of(std::move(names), "LANE");
}

CLI::Validator format_name() { return one_of(writable_formats(), "FORMAT"); }

std::string format_names() { return joined(writable_formats()); }

void add_common_flags(CLI::App& app, CommonOptions& options) {
  app.add_option("--threads", options.threads,
                 fmt::format("Threads (default: the {} cores this process may use)", usable_cores()))
      ->check(in_range(1, kMostThreads));
  app.add_option("--device", options.device, "Where to compute; this build has the cpu")
      ->check(one_of({"cpu"}, "DEVICE"))
      ->capture_default_str();
  app.add_option("--isa", options.isa,
                 fmt::format("Force an instruction set: {} (default: the fastest here)", joined(isa_names())))
      ->check(one_of(isa_names(), "ISA"));
  app.add_option("--lane", options.lane,
                 "Force a lane by its staged type: auto, bf16, f16, s8.group, s8.nested, s8.block, s8.xblock, s8.row, "
                 "f8.group, f8.row; auto is the stock lane, bf16")
      ->check(lane_name())
      ->capture_default_str();
  app.add_flag("--json", options.json, "One JSON document on stdout, nothing else");
}

Expected<Context> make_context(const CommonOptions& options) {
  ContextOptions wanted;
  wanted.threads = options.threads;
  wanted.isa = options.isa;
  wanted.lane = staged_type_from_name(options.lane);
  return Context::create(wanted);
}

CLI::Option* add_list(CLI::App& app, const std::string& flags, std::vector<int64_t>& values, const std::string& help) {
  const std::string name = flags.substr(flags.rfind(',') == std::string::npos ? 0 : flags.rfind(',') + 1);
  CLI::Option* option = app.add_option_function<std::string>(
      flags,
      [&values, name](const std::string& text) {
        values.clear();
        for (const std::string& part : split(text)) {
          int64_t value = 0;
          const char* end = part.data() + part.size();
          const auto [stop, error] = std::from_chars(part.data(), end, value);
          if (error != std::errc() || stop != end || value < 1 || value > 100'000'000) {
            throw CLI::ValidationError(name, fmt::format("wanted whole numbers from 1, got {}", quote(part)));
          }
          values.push_back(value);
        }
      },
      help);
  return option->type_name("N,...")->default_str(fmt::format("{}", fmt::join(values, ",")));
}

CLI::Option* add_list(CLI::App& app, const std::string& flags, std::vector<std::string>& values,
                      const CLI::Validator& each, const std::string& help) {
  CLI::Option* option = app.add_option_function<std::string>(
      flags,
      [&values, each, flags](const std::string& text) {
        values = split(text);
        for (std::string& value : values) {
          if (std::string why = each(value); !why.empty()) throw CLI::ValidationError(flags, why);
        }
      },
      help);
  return option->type_name("NAME,...")->default_str(joined(values));
}

void print_json(const Json& document) {
  fmt::print(stdout, "{}\n", document.dump(1, ' ', false, Json::error_handler_t::replace));
}

double median(std::vector<double> samples) {
  std::ranges::sort(samples);
  const size_t middle = samples.size() / 2;
  return samples.size() % 2 == 1 ? samples[middle] : (samples[middle - 1] + samples[middle]) / 2;
}

Json spread_json(const std::vector<double>& samples) {
  return {{"min", std::ranges::min(samples)}, {"median", median(samples)}, {"max", std::ranges::max(samples)}};
}

Expected<const Format*> tensor_format(const GgufFile& file, const GgufTensor& tensor) {
  if (const Format* format = find_ggml_format(tensor.ggml_type)) return format;
  return fail("{}: tensor {}: wanted a type that octalane computes with, got {}", file.path(), quote(tensor.name),
              ggml_type_name(tensor.ggml_type));
}

int64_t rows_to_check(const Linear& linear, int64_t tokens, int64_t multiplications) {
  const int64_t rows = multiplications / std::max<int64_t>(1, tokens * linear.cols());
  return std::min(linear.rows(), std::max<int64_t>(16, rows));
}

bool matches_any(std::string_view name, const std::vector<std::string>& patterns) {
  const std::string text(name);
  return std::ranges::any_of(
      patterns, [&](const std::string& pattern) { return ::fnmatch(pattern.c_str(), text.c_str(), 0) == 0; });
}

}  // namespace octalane::cli
