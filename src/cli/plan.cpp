// plan -m MODEL --tokens 1,16,512: which kernel each product gets, and why the others were refused.
#include <fmt/format.h>

#include <map>

#include "cli/command.h"
#include "cli/inference.h"
#include "cli/lanes.h"
#include "cli/table.h"
#include "cli/tensor_plan.h"
#include "files/quote.h"

namespace octalane::cli {
namespace {

struct Options {
  CommonOptions common;
  std::string model;
  std::vector<int64_t> tokens{1, 16, 512};
  std::vector<std::string> patterns;
};

Json plan_json(const CheckpointTensor& tensor, int64_t tokens, const Plan& plan) {
  Json refused = Json::array();
  for (const Refusal& refusal : plan.refused) refused.push_back({{"kernel", refusal.kernel}, {"why", refusal.why}});
  return {{"tensor", tensor.name},
          {"format", tensor.format->name},
          {"rows", tensor.rows()},
          {"cols", tensor.cols()},
          {"tokens", tokens},
          {"kernel", name(*plan.choice.kernel)},
          {"staged", name(plan.choice.kernel->staged)},
          {"reason", plan.reason},
          {"estimated_seconds", plan.seconds ? Json(*plan.seconds) : Json()},
          {"refused", std::move(refused)}};
}

/// Products of one format, shape and lane have one plan, and a model has many of them.
void print_people(const Json& plans) {
  struct Group {
    const Json* first;
    int count = 0;
  };
  std::vector<std::string> order;
  std::map<std::string, Group> groups;
  for (const Json& plan : plans) {
    std::string key = fmt::format("{} {} {} {} {}", plan["tokens"].get<int64_t>(), plan["format"].get<std::string>(),
                                  plan["rows"].get<int64_t>(), plan["cols"].get<int64_t>(), plan["refused"].dump());
    Group& group = groups[key];
    if (group.count++ == 0) {
      group.first = &plan;
      order.push_back(std::move(key));
    }
  }
  for (const std::string& key : order) {
    const auto& [first, count] = groups[key];
    const Json& plan = *first;
    fmt::print("{} tokens x {} [{} x {}] {}{}\n  {}: {}\n", plan["tokens"].get<int64_t>(),
               plan["format"].get<std::string>(), plan["rows"].get<int64_t>(), plan["cols"].get<int64_t>(),
               quote(plan["tensor"].get<std::string>()), count > 1 ? fmt::format(" and {} more", count - 1) : "",
               plan["kernel"].get<std::string>(), plan["reason"].get<std::string>());
    for (const Json& refusal : plan["refused"]) {
      fmt::print("    not {}: {}\n", refusal["kernel"].get<std::string>(), refusal["why"].get<std::string>());
    }
  }
}

Expected<int> plan(const Options& options) {
  const Expected<Checkpoint> file = Checkpoint::open(options.model);
  if (!file) return fail_with(file);
  const Expected<ObeyedLanes> lanes = find_lanes(options.common, *file);
  if (!lanes) return fail_with(lanes);
  const Expected<Context> context =
      make_context(options.common, matrix_formats(*file), Unmeasured::measure, lanes->rules);
  if (!context) return fail_with(context);
  name_receipt(options.common, *lanes);
  Json plans = Json::array();
  for (const int64_t tokens : options.tokens) {
    for (const CheckpointTensor& tensor : file->tensors()) {
      if (!is_matrix(tensor)) continue;
      if (!options.patterns.empty() && !matches_any(tensor.name, options.patterns)) continue;
      const Expected<Plan> one = plan_tensor(*context, *file, tensor, tokens);
      if (!one) return fail_with(one);
      plans.push_back(plan_json(tensor, tokens, *one));
    }
  }
  if (plans.empty()) return fail("{}: wanted a matrix to plan for, found none of that name", options.model);
  if (options.common.json) {
    print_json({{"file", file->path()},
                {"threads", context->threads()},
                {"receipt", text_or_null(lanes->receipt)},
                {"plans", std::move(plans)}});
  } else {
    print_people(plans);
  }
  return 0;
}

}  // namespace

Command plan_command(CLI::App& parent) {
  Flags flags(parent, "plan", "Show which kernel each product gets, and why not another");
  auto options = std::make_shared<Options>();
  flags.text("-m,--model", options->model, "A GGUF file; only its header is read, and samples for a receipt",
             Need::required);
  flags.numbers("--tokens", options->tokens, "Tokens per product");
  flags.patterns("-t,--tensor", options->patterns, "Only tensors of this name");
  flags.common(options->common);
  flags.lane_plan(options->common);
  flags.receipt(options->common);
  flags.rates(options->common);
  return {flags.app(), [options] { return plan(*options); }};
}

}  // namespace octalane::cli
