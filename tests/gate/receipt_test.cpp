#include "gate/receipt.h"

#include <cmath>
#include <nlohmann/json.hpp>

#include "gate/gate_testing.h"

namespace octalane {
namespace {

using gate_test::TemporaryFile;
using Json = nlohmann::json;

/// One lane that passed, one that failed, one that nothing can take, and a mixed one.
Receipt receipt() {
  Receipt out;
  out.version = "1.2.3";
  out.fingerprint = "0123456789abcdef";
  out.window = 512;
  out.texts = {{"a.txt", "ff", 1024, 510}, {"b.txt", "ee", 512, 255}};
  out.noise_floor = {{}, {}};
  out.lanes = {{StagedType::s8_group, {{.kld_mean = 0.1}, {.kld_mean = 0.2, .top1 = 0.5}}, {{"head", "bits"}}, 9, ""},
               {StagedType::s8_row, {{.kld_mean = NAN}, {}}, {}, 10, "mean KL divergence nan"},
               {StagedType::f8_row, {}, {{"head", "no kernel"}}, 0, "no tensor"}};
  out.mixed = LaneJudgement{StagedType::s8_row, {{}, {}}, {{"head", "bits"}, {"blk.0.q", "hurts"}}, 8, ""};
  return out;
}

TEST(Receipt, says_the_worst_of_each_figure_the_texts_and_the_verdict) {
  const Json json = Json::parse(receipt_text(receipt()));
  const Json& lane = json["lanes"][0];
  EXPECT_EQ(lane["staged"], "s8.group");
  EXPECT_EQ(lane["verdict"], "pass");
  EXPECT_EQ(lane["kld_mean"], 0.2);
  EXPECT_EQ(lane["top1"], 0.5);
  EXPECT_EQ(lane["ppl_ratio"], 1.0);
  EXPECT_EQ(lane["texts"][0]["file"], "a.txt");
  EXPECT_EQ(lane["texts"][0]["kld_mean"], 0.1);
  EXPECT_EQ(lane["stock"][0]["tensor"], "head");
  EXPECT_EQ(json["lanes"][1]["verdict"], "fail");
  EXPECT_TRUE(json["lanes"][1]["kld_mean"].is_null());
  EXPECT_EQ(json["lanes"][2]["verdict"], "not served");
  EXPECT_EQ(json["mixed"]["lane"], "s8.row");
  EXPECT_EQ(json["mixed"]["stock"], Json({"head", "blk.0.q"}));
  EXPECT_EQ(json["thresholds"]["max_kld"], 0.02);
  EXPECT_EQ(json["noise_floor"]["kld_max"], 0.0);
  EXPECT_EQ(json["model"]["fingerprint"], "0123456789abcdef");
}

TEST(Receipt, what_is_read_back_are_the_lanes_that_passed) {
  const TemporaryFile file("");
  ASSERT_TRUE(write_receipt(file.path(), receipt()));
  const Expected<ReceiptRead> read = read_receipt(file.path());
  ASSERT_TRUE(read) << read.error().message;
  EXPECT_EQ(read->version, "1.2.3");
  EXPECT_EQ(read->fingerprint, "0123456789abcdef");
  ASSERT_EQ(read->grants.size(), 2u);
  EXPECT_EQ(read->grants[0].lane, StagedType::s8_group);
  EXPECT_EQ(read->grants[0].except, std::vector<std::string>({"head"}));
  EXPECT_EQ(read->grants[1].lane, StagedType::s8_row);
  EXPECT_EQ(read->grants[1].except, std::vector<std::string>({"head", "blk.0.q"}));
  const LaneRules rules{{}, read->grants};
  EXPECT_EQ(rules.granted("head"), StagedSet());
  EXPECT_EQ(rules.granted("blk.0.q"), StagedSet({StagedType::s8_group}));
  EXPECT_EQ(rules.granted("blk.0.k"), StagedSet({StagedType::s8_group, StagedType::s8_row}));
}

TEST(Receipt, whatever_else_a_file_holds_is_an_error_that_names_it) {
  const Json good = Json::parse(receipt_text(receipt()));
  const auto refused = [](const std::string& text) {
    const TemporaryFile file(text);
    const Expected<ReceiptRead> read = read_receipt(file.path());
    return !read && read.error().message.rfind(file.path(), 0) == 0;
  };
  const auto spoiled = [&](const char* pointer, Json value) {
    Json bad = good;
    bad[Json::json_pointer(pointer)] = std::move(value);
    return refused(bad.dump());
  };
  EXPECT_FALSE(refused(good.dump()));
  for (const char* text : {"", "null", "[]", "{}", "{\"octalane_lanes\": 1}"}) EXPECT_TRUE(refused(text)) << text;
  EXPECT_TRUE(spoiled("/octalane_lanes", 2));
  EXPECT_TRUE(spoiled("/octalane", 3));
  EXPECT_TRUE(spoiled("/model", "x"));
  EXPECT_TRUE(spoiled("/model/fingerprint", nullptr));
  EXPECT_TRUE(spoiled("/lanes", 3));
  EXPECT_TRUE(spoiled("/lanes/0", 3));
  EXPECT_TRUE(spoiled("/lanes/0/verdict", true));
  EXPECT_TRUE(spoiled("/lanes/0/staged", "bf16")) << "no lossy lane";
  EXPECT_TRUE(spoiled("/lanes/0/staged", "s9.group"));
  EXPECT_TRUE(spoiled("/lanes/0/stock", "head"));
  EXPECT_TRUE(spoiled("/lanes/0/stock/0", 3));
  EXPECT_TRUE(spoiled("/mixed", 3));
  EXPECT_TRUE(spoiled("/mixed/stock", nullptr));
  EXPECT_FALSE(read_receipt("/no/such/receipt"));
}

TEST(Receipt, lies_beside_the_model) {
  EXPECT_EQ(receipt_path("dir/model.gguf"), "dir/model.gguf.lanes.json");
  EXPECT_EQ(receipt_path("dir/model//"), "dir/model.lanes.json");
}

}  // namespace
}  // namespace octalane
