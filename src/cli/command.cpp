#include "cli/command.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <cstdio>

#include "cli/tensor_plan.h"
#include "core/staged_type.h"
#include "files/quote.h"

namespace octalane::cli {

namespace {

ContextOptions context_options(const CommonOptions& options) {
  ContextOptions wanted;
  wanted.threads = options.threads;
  wanted.isa = options.isa;
  wanted.lane = staged_type_from_name(options.lane);
  wanted.wrong_results = options.wrong_results;
  return wanted;
}

}  // namespace

Expected<Context> make_context(const CommonOptions& options) { return Context::create(context_options(options)); }

Expected<Context> make_context(const CommonOptions& options, const std::vector<const Format*>& formats,
                               Unmeasured unmeasured, std::shared_ptr<const LaneRules> rules) {
  Expected<Context> context = make_context(options);
  if (!context) return context;
  StagedSet also;
  if (rules != nullptr) {
    also = rules->named();
    also.insert(StagedType::bf16);  // what auto falls back to
  }
  Expected<std::shared_ptr<const Rates>> rates =
      find_rates(options, context->plan_inputs().isas, formats, unmeasured, also);
  if (!rates) return fail_with(rates);
  ContextOptions wanted = context_options(options);
  wanted.rates = std::move(*rates);
  wanted.rules = std::move(rules);
  return Context::create(wanted);
}

std::vector<const Format*> matrix_formats(const Checkpoint& file) {
  std::vector<const Format*> formats;
  for (const CheckpointTensor& tensor : file.tensors()) {
    if (tensor.format == nullptr || !is_matrix(tensor)) continue;
    if (std::ranges::find(formats, tensor.format) == formats.end()) formats.push_back(tensor.format);
  }
  return formats;
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

Expected<const Format*> tensor_format(const Checkpoint& file, const CheckpointTensor& tensor) {
  if (tensor.format != nullptr) return tensor.format;
  return fail("{}: tensor {}: wanted a type that octalane computes with, got {}", file.path(), quote(tensor.name),
              tensor.type);
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
