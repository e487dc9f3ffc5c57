// Which lane a product takes: rules, grants, and weights that change lanes.
#include "core/restage.h"
#include "linear/linear_testing.h"

namespace octalane {
namespace {

TEST(LaneRules, patterns_have_stars_and_question_marks) {
  EXPECT_TRUE(matches("blk.*.ffn_down.weight", "blk.12.ffn_down.weight"));
  EXPECT_TRUE(matches("*", ""));
  EXPECT_TRUE(matches("**a*", "bca"));
  EXPECT_TRUE(matches("blk.?.x", "blk.1.x"));
  EXPECT_TRUE(matches("a*b*c", "a.b.b.c"));
  EXPECT_FALSE(matches("blk.?.x", "blk.12.x"));
  EXPECT_FALSE(matches("blk.?.x", "blk..x"));
  EXPECT_FALSE(matches("", "x"));
  EXPECT_FALSE(matches("blk", "blk.1"));
  EXPECT_FALSE(matches("*.weight", "a.bias"));
  EXPECT_FALSE(matches("[ab]", "a")) << "no other characters are special";
}

/// A context whose lanes depend on the tensor.
Context ruled_context(LaneRules rules, std::optional<StagedType> lane = {}) {
  ContextOptions options{.threads = 1, .isa = {}, .lane = lane};
  options.rules = std::make_shared<const LaneRules>(std::move(rules));
  Expected<Context> context = Context::create(options);
  EXPECT_TRUE(context) << context.error().message;
  return std::move(*context);
}

TEST(LaneRules, the_last_rule_that_matches_decides_else_the_context_s_lane) {
  const LaneSelection nested{StagedType::s8_nested, {}}, row{StagedType::s8_row, {}}, automatic{};
  const std::vector<LaneRule> rules{{"blk.*", StagedType::s8_row}, {"*.q", StagedType::s8_group}, {"blk.1.*", {}}};
  const Context context = ruled_context({rules, {}}, StagedType::s8_nested);
  EXPECT_EQ(context.lanes_of("output"), nested);
  EXPECT_EQ(context.lanes_of("blk.0.k"), row);
  EXPECT_EQ(context.lanes_of("blk.0.q").forced, StagedType::s8_group);
  EXPECT_EQ(context.lanes_of("blk.1.q"), automatic) << "auto, though the context has a lane";
}

TEST(LaneRules, the_stock_lane_by_name_turns_them_off) {
  const LaneRules rules{{{"*", StagedType::s8_group}}, {{StagedType::s8_row, {}}}};
  const LaneSelection stock{StagedType::bf16, {}};
  EXPECT_EQ(ruled_context(rules, StagedType::bf16).lanes_of("w"), stock);
}

TEST(LaneRules, auto_takes_what_is_granted_but_for_the_exceptions) {
  const Context context = ruled_context({{{"c", StagedType::s8_group}}, {{StagedType::s8_group, {"b"}}}});
  EXPECT_EQ(context.lanes_of("a").lossy, StagedSet({StagedType::s8_group}));
  EXPECT_EQ(context.lanes_of("b"), LaneSelection{});
  EXPECT_EQ(context.lanes_of("c").lossy, StagedSet()) << "a lane by name is that lane alone";
}

TEST(Linear, takes_the_lane_that_its_name_says) {
  const LaneRules rules{{{"lossy", StagedType::s8_group}}, {}};
  Context context = ruled_context(rules), stock = make_context(1), lossy = make_context(1, "", StagedType::s8_group);
  const Format& format = *find_format("q4_0");
  const std::vector<std::byte> data = blocks(format, 32, 64, 1);
  const std::vector<float> x = normal(5 * 64, 2);
  const auto product = [&](Context& with, const std::string& name) {
    const Expected<Linear> linear = Linear::bind(with, name, format, data.data(), 32, 64);
    EXPECT_TRUE(linear) << linear.error().message;
    std::vector<float> y(5 * 32);
    EXPECT_TRUE(linear->multiply(with, dense_view<const float>(x.data(), 5, 64), dense_view(y.data(), 5, 32)));
    return y;
  };
  EXPECT_EQ(product(context, "lossy"), product(lossy, "w"));
  EXPECT_EQ(product(context, "other"), product(stock, "w"));
  EXPECT_NE(product(context, "lossy"), product(context, "other"));
}

TEST(Linear, a_rule_s_lane_that_cannot_serve_is_an_error_that_names_the_tensor) {
  Context context = ruled_context({{{"blk.*", StagedType::s8_row}}, {}});
  const Format& format = *find_format("q8_0");
  const std::vector<std::byte> data = blocks(format, 4, 64, 1);
  const Expected<Linear> linear = Linear::bind(context, "blk.0.q", format, data.data(), 4, 64);
  ASSERT_FALSE(linear);
  EXPECT_EQ(linear.error().message.rfind("blk.0.q: no kernel serves", 0), 0u) << linear.error().message;
  EXPECT_NE(linear.error().message.find("codes of 8 bits"), std::string::npos) << linear.error().message;
  EXPECT_TRUE(Linear::bind(context, "output", format, data.data(), 4, 64));
}

TEST(Linear, other_lanes_share_the_packed_weights_and_keep_their_bits) {
  Context context = make_context(2);
  const Format& format = *find_format("q4_0");
  const std::vector<std::byte> data = blocks(format, 40, 512, 1);
  const Linear stock = *Linear::bind(context, "w", format, data.data(), 40, 512);
  const std::vector<float> x = normal(3 * 512, 2);
  const auto product = [&](Context& with, const Linear& linear) {
    std::vector<float> y(3 * 40);
    EXPECT_TRUE(linear.multiply(with, dense_view<const float>(x.data(), 3, 512), dense_view(y.data(), 3, 40)));
    return y;
  };
  for (const StagedType lane : {StagedType::s8_group, StagedType::s8_row, StagedType::s8_block, StagedType::bf16}) {
    Context forced = make_context(1, "", lane);
    const Linear bound = *Linear::bind(forced, "w", format, data.data(), 40, 512);
    const Expected<Linear> other = stock.with_lanes(context, {lane, {}});
    ASSERT_TRUE(other) << other.error().message;
    EXPECT_EQ(product(context, *other), product(forced, bound)) << name(lane);
    EXPECT_EQ(other->weights().data == stock.weights().data, other->weights().order == stock.weights().order);
    EXPECT_EQ(other->restaged() != nullptr, restaged(lane));
  }
  EXPECT_FALSE(stock.with_lanes(context, {StagedType::s8_nested, {}})) << "the scales are not nested";
}

TEST(Linear, the_re_encoding_of_auto_is_what_many_tokens_would_take) {
  Context context = ruled_context({{}, {{StagedType::s8_row, {}}, {StagedType::s8_block, {}}}});
  const Format& format = *find_format("q4_0");
  const std::vector<std::byte> data = blocks(format, 32, 512, 1);
  const Linear linear = *Linear::bind(context, "w", format, data.data(), 32, 512);
  const Choice many = linear.choose(context, kBindingTokens);
  EXPECT_EQ(linear.restaged() != nullptr, restaged(many.kernel->staged));
  // On the scalar instruction set alone any int8 lane beats the stock one.
  ContextOptions options{.threads = 1, .isa = "scalar", .lane = {}};
  options.rules = std::make_shared<const LaneRules>(LaneRules{{}, {{StagedType::s8_row, {}}}});
  Context scalar = *Context::create(options);
  const Linear slow = *Linear::bind(scalar, "w", format, data.data(), 32, 512);
  EXPECT_EQ(slow.choose(scalar, kBindingTokens).kernel->staged, StagedType::s8_row);
  EXPECT_NE(slow.restaged(), nullptr);
}

}  // namespace
}  // namespace octalane
