// kernels: the kernel table of this build.
#include <fmt/format.h>

#include "cli/command.h"
#include "cli/machine.h"
#include "cli/table.h"
#include "core/ablation.h"
#include "kernels/registry.h"

namespace octalane::cli {
namespace {

struct Options {
  CommonOptions common;
  bool markdown = false;
};

std::string_view op_name(Op op) { return op == Op::gemm ? "gemm" : "gemv"; }

std::string_view form_name(ActivationForm form) {
  switch (form) {
    case ActivationForm::bf16_as_f32: return "bf16 in f32";
    case ActivationForm::s8: return "int8, scale and sum per group";
    case ActivationForm::bf16_tiles: return "bf16 in matrix tiles";
    case ActivationForm::s8_tiles: return "int8 in matrix tiles, scale per group";
    case ActivationForm::e4m3: return "E4M3, scale per row";
  }
  return "";
}

std::string tile_name(const TileShape& tile) { return fmt::format("{}x{}x{}", tile.m, tile.n, tile.k); }

template <class Visit>
void for_each_kernel(Visit visit) {
  for (const IsaTable* isa : isa_tables()) {
    for (const Kernel& kernel : isa->kernels) visit(*isa, kernel);
  }
}

void print_as_json() {
  Json kernels = Json::array();
  for_each_kernel([&](const IsaTable& isa, const Kernel& kernel) {
    const std::string unavailable = isa.unavailable();
    kernels.push_back({{"name", name(kernel)},
                       {"isa", kernel.isa},
                       {"available", unavailable.empty()},
                       {"unavailable_because", unavailable.empty() ? Json() : Json(unavailable)},
                       {"staged", name(kernel.staged)},
                       {"op", op_name(kernel.op)},
                       {"tile", {{"m", kernel.tile.m}, {"n", kernel.tile.n}, {"k", kernel.tile.k}}},
                       {"order", {{"rows", kernel.order.rows}}},
                       {"activations", form_name(kernel.form)},
                       {"instruction", kernel.instruction},
                       {"nominal_ops_per_clock", kernel.nominal_ops_per_clock},
                       {"max_tokens", kernel.max_tokens == INT64_MAX ? Json() : Json(kernel.max_tokens)}});
  });
  print_json({{"ablation", ablation_json()}, {"kernels", std::move(kernels)}});
}

Table table(bool with_availability) {
  std::vector<Table::Column> columns{{"kernel"}, {"ISA"}};
  if (with_availability) columns.push_back({"here"});
  for (const char* title : {"staged", "op"}) columns.push_back({title});
  for (const char* title : {"tile MxNxK", "packed rows", "tokens"}) columns.push_back({title, Table::Align::right});
  for (const char* title : {"activations", "instruction"}) columns.push_back({title});
  Table out(std::move(columns));
  for_each_kernel([&](const IsaTable& isa, const Kernel& kernel) {
    std::vector<std::string> row{name(kernel), kernel.isa};
    if (with_availability) row.emplace_back(isa.unavailable().empty() ? "yes" : "no");
    row.insert(row.end(), {std::string(name(kernel.staged)), std::string(op_name(kernel.op)), tile_name(kernel.tile),
                           fmt::format("{}", kernel.order.rows),
                           kernel.max_tokens == INT64_MAX ? "any" : fmt::format("up to {}", kernel.max_tokens),
                           std::string(form_name(kernel.form)), kernel.instruction});
    out.add(std::move(row));
  });
  return out;
}

void print_markdown() {
  fmt::print(
      "# Kernels\n\n"
      "Written by `octalane kernels --markdown`; a test compares. A name is computed from its row: staged type, op,\n"
      "tile, instruction set. `tile` is tokens x weight rows x columns held or decoded at once, `packed rows` the "
      "weight\n"
      "rows of a tile in memory.\n\n{}",
      table(false).markdown());
}

Expected<int> kernels(const Options& options) {
  if (options.common.json) {
    print_as_json();
  } else if (options.markdown) {
    print_markdown();
  } else {
    fmt::print("{}", table(true).text());
    for (const IsaTable* isa : isa_tables()) {
      if (const std::string why = isa->unavailable(); !why.empty()) fmt::print("{} is not here: {}\n", isa->name, why);
    }
    if (kAblation != Ablation::none) fmt::print("An ablation build, {}: products are wrong.\n", name(kAblation));
  }
  return 0;
}

}  // namespace

Command kernels_command(CLI::App& parent) {
  Flags flags(parent, "kernels", "List the kernels of this build");
  auto options = std::make_shared<Options>();
  flags.toggle("--markdown", options->markdown, "As docs/kernels.md has it");
  flags.common(options->common);
  return {flags.app(), [options] { return kernels(*options); }};
}

}  // namespace octalane::cli
