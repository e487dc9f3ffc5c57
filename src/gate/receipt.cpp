#include "gate/receipt.h"

#include <algorithm>
#include <cmath>
#include <filesystem>

#include "files/output_file.h"
#include "gate/json_file.h"

namespace octalane {
namespace {

constexpr int kVersion = 1;

Json number(double value) { return std::isfinite(value) ? Json(value) : Json(); }

Json figures_json(const Comparison& c) {
  return {{"ppl_ratio", number(c.ppl_ratio)},
          {"ppl_ratio_stderr", number(c.ppl_ratio_error)},
          {"kld_mean", number(c.kld_mean)},
          {"kld_stderr", number(c.kld_error)},
          {"kld_p99", number(c.kld_p99)},
          {"kld_max", number(c.kld_max)},
          {"top1", number(c.top1)}};
}

/// The worst of each figure, and the figures of each text.
void add_texts(const std::vector<Comparison>& figures, const Receipt& receipt, Json& out) {
  if (figures.empty()) return;
  out.update(figures_json(worst_of(figures)));
  Json texts = Json::array();
  for (size_t i = 0; i < figures.size(); ++i) {
    Json text{{"file", receipt.texts[i].name}};
    text.update(figures_json(figures[i]));
    texts.push_back(std::move(text));
  }
  out["texts"] = std::move(texts);
}

Json judgement_json(const LaneJudgement& lane, const Receipt& receipt) {
  Json out{{"staged", name(lane.staged)},
           {"verdict", verdict(lane)},
           {"why", lane.fails.empty() ? Json() : Json(lane.fails)}};
  add_texts(lane.texts, receipt, out);
  Json stock = Json::array();
  for (const KeptStock& kept : lane.stock) stock.push_back({{"tensor", kept.tensor}, {"why", kept.why}});
  out["tensors"] = lane.served;
  out["stock"] = std::move(stock);
  return out;
}

Json document(const Receipt& r) {
  Json texts = Json::array(), lanes = Json::array(), noise = Json::object();
  for (const Receipt::TextRead& text : r.texts) {
    texts.push_back({{"file", text.name}, {"hash", text.hash}, {"tokens", text.tokens}, {"scored", text.scored}});
  }
  for (const LaneJudgement& lane : r.lanes) lanes.push_back(judgement_json(lane, r));
  add_texts(r.noise_floor, r, noise);
  Json out{{"octalane_lanes", kVersion},
           {"octalane", r.version},
           {"commit", r.commit},
           {"date", r.date},
           {"command", r.command},
           {"model", {{"file", r.model}, {"fingerprint", r.fingerprint}}},
           {"thresholds",
            {{"max_ppl_ratio", r.thresholds.max_ppl_ratio},
             {"max_kld", r.thresholds.max_kld},
             {"min_top1", r.thresholds.min_top1}}},
           {"stock", name(StagedType::bf16)},
           {"context", r.window},
           {"texts", std::move(texts)},
           {"noise_floor", std::move(noise)},
           {"lanes", std::move(lanes)},
           {"mixed", nullptr}};
  if (r.mixed) {
    out["mixed"] = judgement_json(*r.mixed, r);
    Json names = Json::array();
    for (const KeptStock& kept : r.mixed->stock) names.push_back(kept.tensor);
    out["mixed"]["lane"] = name(r.mixed->staged);
    out["mixed"]["why_stock"] = std::move(out["mixed"]["stock"]);
    out["mixed"]["stock"] = std::move(names);
  }
  if (r.layers_lane) {
    Json layers = Json::array();
    for (const LayerScore& layer : r.layers) {
      Json row{{"name", layer.name}, {"tensors", layer.tensors}};
      row.update(figures_json(layer.worst));
      layers.push_back(std::move(row));
    }
    out["layers_lane"] = name(*r.layers_lane);
    out["layers"] = std::move(layers);
  }
  return out;
}

LaneGrant grant_of(const LaneJudgement& lane) {
  LaneGrant grant{lane.staged, {}};
  for (const KeptStock& kept : lane.stock) grant.except.push_back(kept.tensor);
  return grant;
}

/// A grant as it was written: the lane under `key`, the tensors kept stock by name or as objects that name them.
Expected<LaneGrant> read_grant(const std::string& where, const Json& row, const char* key) {
  const std::string* lane = text_at(row, key);
  const std::optional<StagedType> staged = lane != nullptr ? staged_type_from_name(*lane) : std::nullopt;
  const Json* stock = list_at(row, "stock");
  if (!staged || info(*staged).stock || stock == nullptr) {
    return fail("{}: wanted a lossy lane and the tensors it leaves out, got something else", where);
  }
  LaneGrant grant{*staged, {}};
  for (const Json& kept : *stock) {
    const std::string* tensor = kept.is_string() ? kept.get_ptr<const std::string*>() : text_at(kept, "tensor");
    if (tensor == nullptr) return fail("{}: stock: wanted names of tensors, got something else", where);
    grant.except.push_back(*tensor);
  }
  return grant;
}

}  // namespace

std::string verdict(const LaneJudgement& lane) {
  if (lane.texts.empty()) return "not served";
  return lane.fails.empty() ? "pass" : "fail";
}

std::vector<LaneGrant> grants_of(const Receipt& receipt) {
  std::vector<LaneGrant> grants;
  for (const LaneJudgement& lane : receipt.lanes) {
    if (lane.passed()) grants.push_back(grant_of(lane));
  }
  if (receipt.mixed && receipt.mixed->passed()) grants.push_back(grant_of(*receipt.mixed));
  return grants;
}

std::string receipt_path(std::string model) {
  if (model == "." || model == ".." || model.ends_with("/.") || model.ends_with("/..")) {
    model = std::filesystem::absolute(model).lexically_normal().string();
  }
  while (model.size() > 1 && model.back() == '/') model.pop_back();
  return model + ".lanes.json";
}

std::string receipt_text(const Receipt& receipt) {
  return document(receipt).dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

Status write_receipt(const std::string& path, const Receipt& receipt) {
  const std::string text = receipt_text(receipt);
  Expected<OutputFile> file = OutputFile::create(path);
  if (!file) return fail_with(file);
  if (const Status written = file->write(std::as_bytes(std::span(text))); !written) return written;
  return file->commit();
}

Expected<ReceiptRead> read_receipt(const std::string& path) {
  const Expected<Json> document = read_json_object(path);
  if (!document) return fail_with(document);
  const Json* format = member(*document, "octalane_lanes");
  if (format == nullptr || *format != kVersion) {
    return fail("{}: wanted a receipt with octalane_lanes {}, got something else", path, kVersion);
  }
  const Json *model = member(*document, "model"), *lanes = list_at(*document, "lanes");
  const std::string* version = text_at(*document, "octalane");
  const std::string* fingerprint = model != nullptr ? text_at(*model, "fingerprint") : nullptr;
  if (version == nullptr || fingerprint == nullptr || lanes == nullptr) {
    return fail("{}: wanted octalane, model.fingerprint and lanes, got something else", path);
  }
  ReceiptRead out{*version, *fingerprint, {}};
  const auto take = [&](const std::string& where, const Json& row, const char* key) -> Status {
    const std::string* verdict = text_at(row, "verdict");
    if (verdict == nullptr) return fail("{}: {}: verdict: wanted a text, got something else", path, where);
    if (*verdict != "pass") return {};
    Expected<LaneGrant> grant = read_grant(fmt::format("{}: {}", path, where), row, key);
    if (!grant) return fail_with(grant);
    out.grants.push_back(std::move(*grant));
    return {};
  };
  for (size_t i = 0; i < lanes->size(); ++i) {
    if (const Status taken = take(fmt::format("lanes[{}]", i), (*lanes)[i], "staged"); !taken) return fail_with(taken);
  }
  const Json* mixed = member(*document, "mixed");
  if (mixed != nullptr && !mixed->is_null()) {
    if (const Status taken = take("mixed", *mixed, "lane"); !taken) return fail_with(taken);
  }
  return out;
}

}  // namespace octalane
