// inspect, plan and kernels: what a file and a build hold.
#include <algorithm>

#include "cli/tool.h"
#include "files/gguf.h"

namespace octalane::cli_test {
namespace {

const Json* find(const Json& list, const std::string& key, const std::string& value) {
  const auto at = std::ranges::find_if(list, [&](const Json& item) { return item[key] == value; });
  return at == list.end() ? nullptr : &*at;
}

TEST(Inspect, shows_header_tensors_and_lanes) {
  const Json view = octalane_json({"inspect", tiny_model("tiny-llama", "q4_k")});
  EXPECT_EQ(view["format"], "gguf");
  EXPECT_EQ(view["architecture"], "llama");
  EXPECT_EQ(view["metadata"]["llama.block_count"], 2);
  EXPECT_EQ(view["metadata"]["tokenizer.ggml.tokens"]["count"], 320);
  EXPECT_LT(view["metadata"]["tokenizer.ggml.tokens"]["first"].size(), 10u);

  const Json* q = find(view["tensors"], "name", "blk.1.attn_k.weight");
  ASSERT_NE(q, nullptr);
  EXPECT_EQ((*q)["format"], "q4_k");
  EXPECT_EQ((*q)["shape"], Json({256, 128}));
  EXPECT_EQ((*q)["bytes"], 128 * 144);
  EXPECT_EQ((*q)["bits_per_weight"], 4.5);
  EXPECT_EQ((*q)["lanes"].size(), 2u);
  for (const Json& lane : (*q)["lanes"]) {
    EXPECT_EQ(lane["staged"], "bf16");
    EXPECT_NE(lane["reason"], "");
  }
  const Json* norm = find(view["tensors"], "name", "output_norm.weight");
  ASSERT_NE(norm, nullptr);
  EXPECT_EQ((*norm)["lanes"].size(), 0u) << "a vector is not multiplied with";
}

TEST(Inspect, lists_types_that_it_cannot_compute_with) {
  const std::string path = scratch() / "iq2.gguf";
  Expected<GgufWriter> writer = GgufWriter::create(path);
  ASSERT_TRUE(writer);
  constexpr uint32_t kIq2Xxs = 16;
  const std::vector<std::byte> block(66);
  ASSERT_TRUE(writer->add_tensor("odd.weight", kIq2Xxs, std::vector<int64_t>{256, 1}));
  ASSERT_TRUE(writer->write_tensor(block));
  ASSERT_TRUE(writer->finish());
  const Json view = octalane_json({"inspect", path});
  EXPECT_EQ(view["architecture"], nullptr);
  EXPECT_EQ(view["tensors"][0]["format"], "iq2_xxs");
  EXPECT_EQ(view["tensors"][0]["supported"], false);
  EXPECT_EQ(view["tensors"][0]["lanes"][0]["kernel"], nullptr);
  expect_error(octalane({"plan", "-m", path}), 1, "iq2_xxs");
  EXPECT_NE(octalane({"inspect", path}).out.find("unsupported"), std::string::npos);
}

TEST(Inspect, never_touches_the_weights) {
  std::string header = "GGUF";
  const auto append = [&header](auto value) { header.append(reinterpret_cast<const char*>(&value), sizeof value); };
  append(uint32_t{3});  // version
  append(uint64_t{1});  // tensors
  append(uint64_t{0});  // keys
  append(uint64_t{1});
  header += "w";
  append(uint32_t{2});
  append(uint64_t{1} << 20);
  append(uint64_t{1} << 18);
  append(uint32_t{0});  // f32
  append(uint64_t{0});
  header.resize((header.size() + 31) / 32 * 32);
  const std::filesystem::path path = scratch() / "huge.gguf";
  write_file(path, header);
  std::filesystem::resize_file(path, header.size() + (uint64_t{1} << 40));  // a hole of 1 TiB
  const Outcome outcome = octalane({"inspect", path, "--json"}, "", "ulimit -t 10;");
  EXPECT_EQ(outcome.exit_code, 0) << outcome.err;
  EXPECT_EQ(Json::parse(outcome.out)["tensors"][0]["bytes"], uint64_t{1} << 40);
}

TEST(Plan, names_a_kernel_and_the_refusals_for_every_product) {
  const Json plans = octalane_json({"plan", "-m", tiny_model(), "--tokens", "1,16"})["plans"];
  ASSERT_EQ(plans.size(), 2u * 16u) << "7 matrices in each of 2 layers, embedding and output, for two counts of tokens";
  const Json table = octalane_json({"kernels"})["kernels"];
  size_t kernels = 0;
  for (const Json& kernel : table) kernels += kernel["available"] == true ? 1 : 0;
  for (const Json& plan : plans) {
    EXPECT_EQ(plan["staged"], "bf16");
    EXPECT_EQ(plan["kernel"].get<std::string>().rfind("bf16_", 0), 0u);
    EXPECT_EQ(plan["refused"].size(), kernels - 1);
    for (const Json& refusal : plan["refused"]) EXPECT_NE(refusal["why"], "");
  }
}

TEST(Plan, obeys_isa_lane_and_pattern) {
  const Json plans = octalane_json({"plan", "-m", tiny_model(), "--tokens", "4", "--isa", "scalar", "--lane",
                                    "s8.group", "-t", "blk.?.attn_*"})["plans"];
  ASSERT_EQ(plans.size(), 8u);
  for (const Json& plan : plans) EXPECT_EQ(plan["kernel"], "s8.group_gemm_1x1x32_scalar");
  expect_error(octalane({"plan", "-m", tiny_model(), "-t", "nothing*"}), 1, "found none");
}

TEST(Kernels, are_listed_with_what_they_need) {
  const Json kernels = octalane_json({"kernels"})["kernels"];
  EXPECT_GE(kernels.size(), 4u);
  for (const Json& kernel : kernels) {
    for (const char* key :
         {"name", "isa", "available", "staged", "op", "tile", "order", "activations", "instruction"}) {
      EXPECT_TRUE(kernel.contains(key)) << key;
    }
    EXPECT_EQ(kernel["name"].get<std::string>().rfind(kernel["staged"].get<std::string>() + "_", 0), 0u);
  }
  ASSERT_NE(find(kernels, "isa", "scalar"), nullptr);
  EXPECT_EQ((*find(kernels, "isa", "scalar"))["available"], true);
}

TEST(Kernels, docs_show_the_table_of_this_build) {
#if !defined(__x86_64__)
  GTEST_SKIP() << "the table in docs/ is that of x86-64";
#endif
  EXPECT_EQ(octalane({"kernels", "--markdown"}).out, read_file(OCTALANE_ROOT "/docs/kernels.md"))
      << "write it anew: octalane kernels --markdown > docs/kernels.md";
}

}  // namespace
}  // namespace octalane::cli_test
