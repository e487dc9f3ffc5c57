#include "cli/flags.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <charconv>

#include "core/parallel.h"
#include "core/staged_type.h"
#include "files/quote.h"
#include "formats/format.h"
#include "kernels/registry.h"

namespace octalane::cli {
namespace {

constexpr int kMostThreads = 1024;
constexpr int64_t kMostInList = 100'000'000;

std::string joined(const std::vector<std::string>& names) { return fmt::format("{}", fmt::join(names, ", ")); }

/// Why the text is none of the names; empty = it is.
std::string refuse(const std::string& text, const std::vector<std::string>& allowed) {
  if (std::ranges::find(allowed, text) != allowed.end()) return "";
  return fmt::format("wanted one of {}, got {}", joined(allowed), quote(text));
}

CLI::Validator one_of(std::vector<std::string> allowed) {
  return {[allowed = std::move(allowed)](std::string& text) { return refuse(text, allowed); }, ""};
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

template <class T>
CLI::Option* add_number(CLI::App& app, const std::string& names, T& value, T least, T most, const std::string& help) {
  CLI::Option* option = app.add_option(names, value, help)->check(CLI::Range(least, most).description(""));
  if (value >= least && value <= most) option->capture_default_str();
  return option;
}

std::vector<std::string> isa_names() {
  std::vector<std::string> names;
  for (const IsaTable* isa : isa_tables()) names.emplace_back(isa->name);
  return names;
}

}  // namespace

std::vector<std::string> lane_names() {
  std::vector<std::string> names{"auto"};
  for (const StagedTypeInfo& row : kStagedTypes) names.emplace_back(row.name);
  return names;
}

std::vector<std::string> encodable_formats() {
  std::vector<std::string> names;
  for (const Format* format : formats()) {
    if (format->from_float != nullptr) names.emplace_back(format->name);
  }
  return names;
}

std::vector<std::string> random_formats() {
  std::vector<std::string> names = encodable_formats();
  for (const Format* format : formats()) {
    if (format->additive != nullptr) names.emplace_back(format->name);
  }
  return names;
}

Flags::Flags(CLI::App& parent, const std::string& name, const std::string& description)
    : app_(parent.add_subcommand(name, description)) {}

void Flags::footer(const std::string& text) { app_->footer(text); }

void Flags::text(const std::string& names, std::string& value, const std::string& help, Need need) {
  app_->add_option(names, value, help)->required(need == Need::required);
}

void Flags::choice(const std::string& names, std::string& value, const std::vector<std::string>& allowed,
                   const std::string& help, Need need) {
  CLI::Option* option = app_->add_option(names, value, fmt::format("{}: {}", help, joined(allowed)));
  option->check(one_of(allowed))->required(need == Need::required);
  if (!value.empty()) option->capture_default_str();
}

void Flags::number(const std::string& names, int& value, int least, int most, const std::string& help) {
  add_number(*app_, names, value, least, most, help);
}

void Flags::number(const std::string& names, int64_t& value, int64_t least, int64_t most, const std::string& help,
                   Need need) {
  add_number(*app_, names, value, least, most, help)->required(need == Need::required);
}

void Flags::number(const std::string& names, float& value, float least, float most, const std::string& help) {
  add_number(*app_, names, value, least, most, help);
}

void Flags::number(const std::string& names, double& value, double least, double most, const std::string& help) {
  add_number(*app_, names, value, least, most, help);
}

void Flags::seed(uint64_t& value, const std::string& help) {
  app_->add_option("--seed", value, help)->capture_default_str();
}

void Flags::toggle(const std::string& names, bool& value, const std::string& help) {
  app_->add_flag(names, value, help);
}

void Flags::numbers(const std::string& names, std::vector<int64_t>& values, const std::string& help) {
  const auto parse = [&values, names](const std::string& text) {
    values.clear();
    for (const std::string& part : split(text)) {
      int64_t value = 0;
      const char* end = part.data() + part.size();
      const auto [stop, error] = std::from_chars(part.data(), end, value);
      if (error != std::errc() || stop != end || value < 1 || value > kMostInList) {
        throw CLI::ValidationError(names, fmt::format("wanted whole numbers from 1, got {}", quote(part)));
      }
      values.push_back(value);
    }
  };
  app_->add_option_function<std::string>(names, parse, help)
      ->type_name("N,...")
      ->default_str(fmt::format("{}", fmt::join(values, ",")));
}

void Flags::choices(const std::string& names, std::vector<std::string>& values, const std::vector<std::string>& allowed,
                    const std::string& help, Need need) {
  const auto parse = [&values, allowed, names](const std::string& text) {
    values = split(text);
    for (const std::string& value : values) {
      if (const std::string why = refuse(value, allowed); !why.empty()) throw CLI::ValidationError(names, why);
    }
  };
  app_->add_option_function<std::string>(names, parse, fmt::format("{}: {}", help, joined(allowed)))
      ->type_name("NAME,...")
      ->join(',')
      ->required(need == Need::required);
}

void Flags::texts(const std::string& names, std::vector<std::string>& values, const std::string& help, Need need) {
  app_->add_option(names, values, help + "; may be repeated")
      ->expected(1)
      ->take_all()
      ->required(need == Need::required);
}

void Flags::patterns(const std::string& names, std::vector<std::string>& values, const std::string& help) {
  app_->add_option(names, values, help + "; * and ? stand for any characters or one; may be repeated")
      ->expected(1)
      ->take_all();
}

void Flags::either(const std::string& names, std::string& value, const std::string& help,
                   const std::string& other_names, std::string& other_value, const std::string& other_help) {
  CLI::Option_group* group = app_->add_option_group("input");
  group->add_option(names, value, help);
  group->add_option(other_names, other_value, other_help);
  group->require_option(1);
}

void Flags::machine(CommonOptions& options, const std::vector<std::string>& devices) {
  number("--threads", options.threads, 1, kMostThreads,
         fmt::format("Threads (default: the {} cores this process may use)", usable_cores()));
  choice("--device", options.device, devices, "Where to compute");
  choice("--isa", options.isa, isa_names(), "Force an instruction set (default: the fastest here)");
  toggle("--json", options.json, "One JSON document on stdout, nothing else");
}

void Flags::common(CommonOptions& options, const std::vector<std::string>& devices) {
  machine(options, devices);
  choice("--lane", options.lane, lane_names(), "Force a lane by its staged type; auto is the stock lane, bf16");
}

void Flags::lane_plan(CommonOptions& options) {
  text("--lanes", options.lanes, "A JSON file of lanes by tensor name (docs/cli.md), over --lane but for --lane bf16");
}

void Flags::receipt(CommonOptions& options) {
  options.receipt = "auto";
  app_->add_option("--receipt", options.receipt,
                   "Which lossy lanes auto may take: auto (what MODEL.lanes.json allows, when octalane gate wrote it), "
                   "none, or a receipt")
      ->capture_default_str();
}

void Flags::rates(CommonOptions& options) {
  app_->add_option(
          "--rates", options.rates,
          "What plans are made from: auto (this machine's rates, measured once), nominal (the kernel table's), or "
          "a file of rates")
      ->envname("OCTALANE_RATES")
      ->capture_default_str();
}

}  // namespace octalane::cli
