// inspect MODEL: what a file holds, from its header alone.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "cli/command.h"
#include "cli/lanes.h"
#include "cli/table.h"
#include "cli/tensor_plan.h"

namespace octalane::cli {
namespace {

constexpr size_t kShownElements = 4;
constexpr size_t kShownText = 100;
constexpr std::array<int64_t, 2> kTokens{1, 512};

struct Options {
  CommonOptions common;
  std::string model;
};

template <class T>
Json first_elements(const GgufFile& file, std::string_view key) {
  Json out = Json::array();
  const Expected<std::vector<T>> all = file.get_array<T>(key);
  for (size_t i = 0; all && i < std::min(all->size(), kShownElements); ++i) out.push_back(T((*all)[i]));
  return out;
}

/// A scalar as itself, an array as {count, first}.
Json value_json(const GgufFile& file, std::string_view key, const GgufValue& value) {
  if (value.type != GgufType::array) {
    return std::visit([](auto scalar) { return Json(scalar); }, value.scalar);
  }
  Json first = Json::array();
  switch (value.array.type) {
    case GgufType::array: break;
    case GgufType::string: first = first_elements<std::string_view>(file, key); break;
    case GgufType::boolean: first = first_elements<bool>(file, key); break;
    case GgufType::f32:
    case GgufType::f64: first = first_elements<double>(file, key); break;
    default: first = first_elements<int64_t>(file, key);
  }
  return {{"count", value.array.count}, {"first", std::move(first)}};
}

Json lanes_json(const Context& context, const Checkpoint& file, const CheckpointTensor& tensor) {
  Json lanes = Json::array();
  if (!is_matrix(tensor)) return lanes;
  for (const int64_t tokens : kTokens) {
    const Expected<Plan> plan = plan_tensor(context, file, tensor, tokens);
    Json lane{{"tokens", tokens}, {"staged", nullptr}, {"kernel", nullptr}, {"reason", nullptr}};
    if (plan) {
      lane["staged"] = name(plan->choice.kernel->staged);
      lane["kernel"] = name(*plan->choice.kernel);
      lane["reason"] = plan->reason;
    } else {
      lane["reason"] = plan.error().message;
    }
    lanes.push_back(std::move(lane));
  }
  return lanes;
}

Json tensor_json(const Context& context, const Checkpoint& file, const CheckpointTensor& tensor) {
  double weights = 1;
  for (const int64_t dim : tensor.shape) weights *= static_cast<double>(dim);
  Json row{{"name", tensor.name},   {"format", tensor.type},      {"shape", tensor.shape},
           {"bytes", tensor.bytes}, {"bits_per_weight", nullptr}, {"supported", tensor.format != nullptr}};
  if (weights > 0) row["bits_per_weight"] = 8.0 * static_cast<double>(tensor.bytes) / weights;
  row["lanes"] = lanes_json(context, file, tensor);
  return row;
}

Json document(const Context& context, const Checkpoint& checkpoint) {
  const GgufFile& file = checkpoint.metadata();
  Json metadata = Json::object();
  for (const auto& [key, value] : file.metadata()) metadata[std::string(key)] = value_json(file, key, value);
  Json tensors = Json::array();
  uint64_t bytes = 0;
  for (const CheckpointTensor& tensor : checkpoint.tensors()) {
    tensors.push_back(tensor_json(context, checkpoint, tensor));
    bytes += tensor.bytes;
  }
  const Expected<std::string_view> architecture = file.get<std::string_view>("general.architecture");
  return {{"file", checkpoint.path()},
          {"format", checkpoint.container()},
          {"version", checkpoint.container() == "gguf" ? Json(file.version()) : Json()},
          {"architecture", architecture ? Json(*architecture) : Json()},
          {"file_bytes", checkpoint.file_bytes()},
          {"tensor_bytes", bytes},
          {"metadata", std::move(metadata)},
          {"tensors", std::move(tensors)}};
}

/// One line of printable characters: names and texts come out of the file.
std::string shown(const Json& value) {
  std::string text = value.dump(-1, ' ', true, Json::error_handler_t::replace);
  if (text.size() > kShownText) text = text.substr(0, kShownText) + "...";
  return text;
}

std::string shown_value(const Json& value) {
  if (!value.is_object()) return shown(value);
  std::string first;
  for (const Json& element : value["first"]) first += shown(element) + ", ";
  return fmt::format("{} elements: {}...", value["count"].get<uint64_t>(), first);
}

std::string shown_name(const Json& name) {
  const std::string text = shown(name);
  return text.substr(1, text.size() - 2);
}

void print_people(const Json& view) {
  const Json& version = view["version"];
  fmt::print("{}: {}, {} bytes, architecture {}\n\n", view["file"].get<std::string>(),
             version.is_null() ? "safetensors" : fmt::format("GGUF v{}", version.get<uint32_t>()),
             view["file_bytes"].get<uint64_t>(), shown(view["architecture"]));
  for (const auto& [key, value] : view["metadata"].items()) {
    fmt::print("{} = {}\n", shown_name(key), shown_value(value));
  }
  Table table({{"tensor"},
               {"format"},
               {"shape", Table::Align::right},
               {"bytes", Table::Align::right},
               {"bits/weight", Table::Align::right},
               {"1 token"},
               {"512 tokens"}});
  std::map<std::string, int> reasons;
  for (const Json& tensor : view["tensors"]) {
    std::vector<std::string> row{
        shown_name(tensor["name"]), tensor["format"].get<std::string>() + (tensor["supported"] ? "" : " (unsupported)"),
        fmt::format("{}", fmt::join(tensor["shape"].get<std::vector<int64_t>>(), " x ")),
        fmt::format("{}", tensor["bytes"].get<uint64_t>()),
        tensor["bits_per_weight"].is_null() ? "-" : fmt::format("{:.3f}", tensor["bits_per_weight"].get<double>())};
    for (const Json& lane : tensor["lanes"]) {
      row.push_back(lane["kernel"].is_null() ? "none" : lane["kernel"].get<std::string>());
      reasons[fmt::format("{}: {}", row.back(), lane["reason"].get<std::string>())] += 1;
    }
    row.resize(7, "-");
    table.add(std::move(row));
  }
  fmt::print("\n{}\n{} tensors, {} bytes of weights\n", table.text(), view["tensors"].size(),
             view["tensor_bytes"].get<uint64_t>());
  for (const auto& [reason, count] : reasons) fmt::print("{} ({} products)\n", reason, count);
}

Expected<int> inspect(const Options& options) {
  const Expected<Checkpoint> file = Checkpoint::open(options.model);
  if (!file) return fail_with(file);
  const Expected<ObeyedLanes> lanes = find_lanes(options.common, *file);
  if (!lanes) return fail_with(lanes);
  const Expected<Context> context =
      make_context(options.common, matrix_formats(*file), Unmeasured::leave, lanes->rules);
  if (!context) return fail_with(context);
  const Json view = document(*context, *file);
  if (options.common.json) {
    print_json(view);
  } else {
    print_people(view);
  }
  return 0;
}

}  // namespace

Command inspect_command(CLI::App& parent) {
  Flags flags(parent, "inspect", "Show what a model file holds, from its header alone");
  auto options = std::make_shared<Options>();
  flags.text("MODEL", options->model, kModelHelp, Need::required);
  flags.common(options->common);
  flags.lane_plan(options->common);
  flags.rates(options->common);
  return {flags.app(), [options] { return inspect(*options); }};
}

}  // namespace octalane::cli
