#include "gate/lane_plan.h"

#include "gate/gate_testing.h"

namespace octalane {
namespace {

using gate_test::TemporaryFile;

std::string error_of(const std::string& text) {
  const TemporaryFile file(text);
  const Expected<std::vector<LaneRule>> rules = read_lane_plan(file.path());
  if (rules) return "";
  EXPECT_EQ(rules.error().message.rfind(file.path(), 0), 0u) << "names the file: " << rules.error().message;
  EXPECT_EQ(rules.error().message.find('\n'), std::string::npos);
  return rules.error().message.substr(file.path().size());
}

TEST(LanePlan, holds_patterns_and_lanes_in_order) {
  const TemporaryFile file(
      R"({"lanes": [{"tensors": "blk.*", "lane": "s8.row"}, {"lane": "auto", "tensors": "blk.0.?"}]})");
  const Expected<std::vector<LaneRule>> rules = read_lane_plan(file.path());
  ASSERT_TRUE(rules) << rules.error().message;
  ASSERT_EQ(rules->size(), 2u);
  EXPECT_EQ((*rules)[0].tensors, "blk.*");
  EXPECT_EQ((*rules)[0].lane, StagedType::s8_row);
  EXPECT_EQ((*rules)[1].tensors, "blk.0.?");
  EXPECT_EQ((*rules)[1].lane, std::nullopt);
}

TEST(LanePlan, whatever_else_a_file_holds_is_an_error_that_says_where) {
  EXPECT_NE(error_of(""), "");
  EXPECT_NE(error_of("[]").find("wanted a JSON object"), std::string::npos);
  EXPECT_NE(error_of("{}").find("lanes: wanted a list"), std::string::npos);
  EXPECT_NE(error_of(R"({"lanes": {}})").find("lanes: wanted a list"), std::string::npos);
  EXPECT_NE(error_of(R"({"lanes": [], "more": 1})").find("got \"more\" too"), std::string::npos);
  EXPECT_NE(error_of(R"({"lanes": [1]})").find("lanes[0]: wanted tensors"), std::string::npos);
  EXPECT_NE(error_of(R"({"lanes": [{"tensors": "*"}]})").find("lanes[0]: wanted tensors"), std::string::npos);
  EXPECT_NE(error_of(R"({"lanes": [{"tensors": "", "lane": "auto"}]})").find("lanes[0]: wanted"), std::string::npos);
  EXPECT_NE(error_of(R"({"lanes": [{"tensors": "*", "lane": 3}]})").find("lanes[0]: wanted"), std::string::npos);
  EXPECT_NE(error_of(R"({"lanes": [{"tensors": "*", "lane": "s9"}]})").find("s8.row, f8.group, f8.row, got \"s9\""),
            std::string::npos);
  EXPECT_NE(error_of(R"({"lanes": [{"tensors": "*", "lane": "auto", "x": 1}]})").find("got \"x\" too"),
            std::string::npos);
  EXPECT_NE(error_of(std::string(100000, '[')), "");
  EXPECT_NE(error_of(std::string("{\"lanes\":[{\"tensors\":\"\xff\n\",\"lane\":\"auto\"}]}")), "");
  EXPECT_FALSE(read_lane_plan("/no/such/file"));
  EXPECT_FALSE(read_lane_plan("/dev/zero"));
}

TEST(LanePlan, a_rule_must_match_a_matrix_of_the_model) {
  const std::vector<std::string> names{"blk.0.ffn_down.weight", "token_embd.weight"};
  const std::vector<LaneRule> rules{{"blk.*", StagedType::s8_row}, {"blk.?.ffn_dwn.*", {}}};
  EXPECT_TRUE(check_lane_plan("plan.json", {rules.data(), 1}, names));
  const Status checked = check_lane_plan("plan.json", rules, names);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().message,
            "plan.json: lanes[1]: wanted a pattern that matches a matrix of the model, got \"blk.?.ffn_dwn.*\"");
}

}  // namespace
}  // namespace octalane
