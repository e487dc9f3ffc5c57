// The gate, its receipts, and plan files, as run, plan and ppl obey them.
#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cli/tool.h"

namespace octalane::cli_test {
namespace {

std::string text_file() {
  const std::string path = scratch() / "gate.txt";
  std::string text;
  for (int i = 0; i < 200; ++i) text += static_cast<char>('a' + (i * i + i / 7) % 26);
  write_file(path, text);
  return path;
}

/// A model file of a test's own, for receipts lie beside models.
std::string own_model(const std::string& name, const std::string& seed = "1") {
  const std::string path = scratch() / (name + ".gguf");
  const Outcome made = octalane({"synth", "--like", "tiny-llama", "--format", "q4_0", "--seed", seed, path});
  EXPECT_EQ(made.exit_code, 0) << made.err;
  return path;
}

Arguments plus(Arguments all, const Arguments& more) {
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

/// Only scalar kernels: there any int8 lane is faster than the stock one, so what is allowed runs.
Json gate(const std::string& model, const Arguments& more = {}) {
  return octalane_json(plus({"gate", "-m", model, "-f", text_file(), "--context", "64", "--tokens", "64", "--isa",
                             "scalar", "--lane", "s8.group"},
                            more));
}

const Arguments kLoose{"--max-ppl-ratio", "100", "--max-kld", "100", "--min-top1", "0"};
const Arguments kNone{"--max-kld", "0"};

Json run(const std::string& model, const Arguments& more = {}) {
  return octalane_json(plus({"run", "-m", model, "-p", "abcdefgh", "-n", "4", "--isa", "scalar"}, more));
}

std::string plan_file(const std::string& text) {
  static int count = 0;
  const std::string path = scratch() / fmt::format("plan{}.json", count++);
  write_file(path, text);
  return path;
}

const char* const kAllGroup = R"({"lanes": [{"tensors": "*", "lane": "s8.group"}]})";

/// {tensor: staged type} of the plan for 64 tokens.
std::map<std::string, std::string> staged(const std::string& model, const Arguments& more = {}) {
  const Json plans = octalane_json(plus({"plan", "-m", model, "--tokens", "64", "--isa", "scalar"}, more))["plans"];
  std::map<std::string, std::string> out;
  for (const Json& plan : plans) out[plan["tensor"]] = plan["staged"];
  return out;
}

TEST(Lanes, a_plan_file_decides_by_tensor_name) {
  const std::string model = tiny_model();
  const std::string file =
      plan_file(R"({"lanes": [{"tensors": "blk.*", "lane": "s8.group"}, {"tensors": "blk.0.ffn_*", "lane": "bf16"}]})");
  std::map<std::string, std::string> lanes = staged(model, {"--lanes", file});
  EXPECT_EQ(lanes["blk.0.attn_q.weight"], "s8.group");
  EXPECT_EQ(lanes["blk.0.ffn_up.weight"], "bf16");
  EXPECT_EQ(lanes["blk.1.ffn_up.weight"], "s8.group");
  EXPECT_EQ(lanes["token_embd.weight"], "bf16");
  EXPECT_EQ(staged(model, {"--lanes", file, "--lane", "s8.row"})["token_embd.weight"], "s8.row");
  const Json ran = run(model, {"--lanes", file});
  EXPECT_EQ(ran["lanes"].size(), 2u);
  EXPECT_TRUE(ran["lanes"].contains("s8.group")) << ran["lanes"];
}

TEST(Lanes, a_plan_file_that_does_not_fit_is_one_line) {
  const auto refused = [](const std::string& text) {
    return octalane({"plan", "-m", tiny_model(), "--lanes", plan_file(text)});
  };
  expect_error(refused("{"), 1, "wanted a JSON object");
  expect_error(refused(R"({"lanes": [{"tensors": "blk.99.*", "lane": "auto"}]})"), 1,
               "lanes[0]: wanted a pattern that matches a matrix of the model, got \"blk.99.*\"");
  expect_error(refused(R"({"lanes": [{"tensors": "*", "lane": "s8.nested"}]})"), 1, "scales are not nested");
  expect_error(octalane({"run", "-m", tiny_model(), "-p", "a", "--lanes", "/no/such/plan"}), 1, "/no/such/plan");
}

TEST(Lanes, the_stock_lane_by_name_is_the_stock_path_to_the_bit) {
  const std::string model = own_model("off");
  const std::string stock = run(model)["logits_hash"], file = plan_file(kAllGroup);
  EXPECT_EQ(run(model, {"--lane", "bf16"})["logits_hash"], stock);
  EXPECT_NE(run(model, {"--lanes", file})["logits_hash"], stock) << "the plan file does something";
  EXPECT_EQ(run(model, {"--lanes", file, "--lane", "bf16"})["logits_hash"], stock);
  gate(model, kLoose);
  EXPECT_NE(run(model)["logits_hash"], stock) << "the receipt does something";
  EXPECT_EQ(run(model, {"--lane", "bf16"})["logits_hash"], stock);
  EXPECT_EQ(run(model, {"--lanes", file, "--lane", "bf16"})["logits_hash"], stock);
  EXPECT_EQ(run(model, {"--receipt", "none"})["logits_hash"], stock);
}

TEST(Gate, writes_the_receipt_that_it_prints_and_run_obeys_it) {
  const std::string model = own_model("pass"), path = model + ".lanes.json";
  const Json receipt = gate(model, kLoose);
  EXPECT_EQ(receipt, Json::parse(read_file(path)));
  EXPECT_EQ(receipt["texts"][0]["scored"], 31);
  EXPECT_EQ(receipt["thresholds"]["max_kld"], 100.0);
  EXPECT_EQ(receipt["noise_floor"]["kld_max"], 0.0) << "scalar kernels are exact to the bit";
  ASSERT_EQ(receipt["lanes"].size(), 1u);
  const Json& lane = receipt["lanes"][0];
  EXPECT_EQ(lane["staged"], "s8.group");
  EXPECT_EQ(lane["verdict"], "pass");
  EXPECT_GT(lane["kld_mean"].get<double>(), 0);
  EXPECT_NE(receipt["command"].get<std::string>().find("--max-kld 100"), std::string::npos);

  const Json paired = octalane_json({"ppl", "-m", model, "-f", text_file(), "--context", "64", "--tokens", "64",
                                     "--isa", "scalar", "--lane", "bf16", "--vs", "auto"});
  EXPECT_EQ(paired["kld"]["mean"], lane["kld_mean"]) << "what is allowed is what was judged";
  EXPECT_EQ(paired["ppl_ratio"], lane["ppl_ratio"]);
  for (const char* key : {"mean", "p99", "max"}) EXPECT_EQ(paired["noise_floor"]["kld"][key], 0.0) << key;
  EXPECT_EQ(paired["noise_floor"]["top1"], 1.0);
  EXPECT_EQ(paired["receipt"], nullptr);
  EXPECT_EQ(paired["vs"]["receipt"], path);

  const Json ran = run(model);
  EXPECT_EQ(ran["receipt"], path);
  EXPECT_EQ(ran["logits_hash"], run(model, {"--lane", "s8.group"})["logits_hash"]);
  EXPECT_EQ(run(model, {"--lane", "bf16"})["receipt"], nullptr);
  const Outcome spoken = octalane({"run", "-m", model, "-p", "a", "-n", "1"});
  EXPECT_NE(spoken.err.find("octalane: " + path + " allows s8.group\n"), std::string::npos) << spoken.err;
}

TEST(Gate, a_lane_that_fails_does_not_run) {
  const std::string model = own_model("fail");
  const std::string stock = run(model)["logits_hash"];
  const Json lane = gate(model, kNone)["lanes"][0];
  EXPECT_EQ(lane["verdict"], "fail");
  EXPECT_NE(lane["why"].get<std::string>().find("KL divergence"), std::string::npos) << lane["why"];
  EXPECT_EQ(run(model)["logits_hash"], stock);
  EXPECT_EQ(run(model)["receipt"], model + ".lanes.json") << "obeyed, though it allows nothing";
  const Json plans = octalane_json({"plan", "-m", model, "--tokens", "64", "--isa", "scalar"})["plans"];
  bool says = false;
  for (const Json& refusal : plans[0]["refused"]) {
    says = says || refusal["why"].get<std::string>().find("no gate receipt allows it") != std::string::npos;
  }
  EXPECT_TRUE(says) << plans[0];
}

TEST(Gate, lanes_that_cannot_serve_say_so_and_the_worst_text_counts) {
  const std::string model = own_model("texts"), other = scratch() / "other.txt";
  write_file(other, std::string(100, 'x'));
  const Json all = octalane_json(plus(
      {"gate", "-m", model, "-f", text_file(), "-f", other, "--context", "32", "--tokens", "32", "--isa", "scalar"},
      kLoose));
  ASSERT_EQ(all["lanes"].size(), 7u) << "every lossy lane";
  for (const Json& lane : all["lanes"]) {
    const bool served = lane["staged"] != "s8.nested" && lane["staged"].get<std::string>()[0] != 'f';
    EXPECT_EQ(lane["verdict"], served ? "pass" : "not served") << lane;
    EXPECT_EQ(lane["stock"].empty(), served);
    if (!served) continue;
    ASSERT_EQ(lane["texts"].size(), 2u);
    const double a = lane["texts"][0]["kld_mean"], b = lane["texts"][1]["kld_mean"];
    EXPECT_NE(a, b);
    EXPECT_EQ(lane["kld_mean"].get<double>(), std::max(a, b));
  }
}

TEST(Gate, a_stale_receipt_is_refused) {
  const std::string model = own_model("stale"), path = model + ".lanes.json";
  gate(model, kLoose);
  Json receipt = Json::parse(read_file(path));
  own_model("stale", "2");  // the same shapes, other weights
  const Outcome other_model = octalane({"run", "-m", model, "-p", "a", "-n", "1"});
  expect_error(other_model, 1, "a stale receipt, wanted one for the model ");
  EXPECT_NE(other_model.err.find("(octalane gate renews it, --receipt none ignores it)"), std::string::npos);
  for (const char* command : {"plan", "ppl", "bench model"}) {
    Arguments arguments{command, "-m", model};
    if (arguments[0] == "ppl") arguments = plus(arguments, {"-f", text_file(), "--context", "64"});
    if (arguments[0] == "bench model") arguments = {"bench", "model", "-m", model};
    expect_error(octalane(arguments), 1, "a stale receipt");
  }
  EXPECT_EQ(run(model, {"--receipt", "none"})["receipt"], nullptr);
  EXPECT_EQ(run(model, {"--lane", "s8.group"})["receipt"], nullptr) << "a lane by name needs none";

  own_model("stale", "1");
  EXPECT_EQ(run(model)["receipt"], path);
  receipt["octalane"] = "0.0.0-other";
  write_file(path, receipt.dump());
  expect_error(octalane({"run", "-m", model, "-p", "a"}), 1, "a stale receipt, wanted one for octalane ");
  write_file(path, "{");
  expect_error(octalane({"run", "-m", model, "-p", "a"}), 1, "wanted a JSON object");
  expect_error(octalane({"run", "-m", model, "-p", "a", "--receipt", "/no/such/receipt"}), 1, "/no/such/receipt");
}

TEST(Gate, a_mixed_plan_keeps_what_hurts_most_stock) {
  const std::string model = own_model("mixed");
  const Json whole =
      gate(model, {"--max-ppl-ratio", "100", "--max-kld", "0", "--min-top1", "0", "--layers", "s8.group"});
  const Json& layers = whole["layers"];
  ASSERT_GT(layers.size(), 7u);
  for (size_t i = 1; i < layers.size(); ++i) {
    EXPECT_GE(layers[i - 1]["kld_mean"].get<double>(), layers[i]["kld_mean"].get<double>());
  }
  const std::string half = fmt::format("{}", whole["lanes"][0]["kld_mean"].get<double>() / 2);
  const Json receipt =
      gate(model, {"--max-ppl-ratio", "100", "--max-kld", half, "--min-top1", "0", "--mixed", "s8.group"});
  EXPECT_EQ(receipt["lanes"][0]["verdict"], "fail");
  const Json& mixed = receipt["mixed"];
  EXPECT_EQ(mixed["lane"], "s8.group");
  EXPECT_EQ(mixed["verdict"], "pass");
  ASSERT_FALSE(mixed["stock"].empty());
  EXPECT_EQ(mixed["stock"][0], layers[0]["name"]) << "the most hurtful first";
  for (const auto& [tensor, lane] : staged(model)) {
    const bool stays = std::ranges::find(mixed["stock"], Json(tensor)) != mixed["stock"].end();
    EXPECT_EQ(lane, stays ? "bf16" : "s8.group") << tensor;
  }
  EXPECT_EQ(staged(model, {"--lane", "bf16"}).begin()->second, "bf16");
}

TEST(Gate, bad_input_leaves_no_receipt) {
  const std::string model = own_model("bad"), receipt = model + ".lanes.json";
  expect_error(octalane({"gate", "-m", model, "-f", "/no/such/text"}), 1, "/no/such/text");
  expect_error(octalane({"gate", "-m", model, "-f", text_file(), "--context", "512"}), 1, "one window");
  expect_error(octalane({"gate", "-m", model}), 2, "--file");
  expect_error(octalane({"gate", "-m", model, "-f", text_file(), "--lane", "bf16"}), 2, "wanted one of s8.group");
  expect_error(octalane({"gate", "-m", model, "-f", text_file(), "--context", "64", "--layers", "f8.row"}), 1,
               "no tensor of the model can take this lane");
  EXPECT_FALSE(std::filesystem::exists(receipt));
  const std::string elsewhere = scratch() / "elsewhere.json";
  EXPECT_EQ(gate(model, {"-o", elsewhere, "--lane", "s8.row,s8.block"})["lanes"].size(), 3u) << "repeated, or a list";
  EXPECT_TRUE(std::filesystem::exists(elsewhere));
  EXPECT_FALSE(std::filesystem::exists(receipt));
}

}  // namespace
}  // namespace octalane::cli_test
