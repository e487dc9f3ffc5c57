#include "gate/fingerprint.h"

#include "gate/gate_testing.h"

namespace octalane {
namespace {

std::string fingerprint(const tiny::Recipe& recipe) {
  const Expected<GgufFile> file = recipe.open();
  EXPECT_TRUE(file) << file.error().message;
  return model_fingerprint(*file);
}

TEST(Fingerprint, is_the_same_for_the_same_file) {
  const tiny::Recipe recipe = tiny::recipe(tiny::variant("llama_tied"));
  EXPECT_EQ(fingerprint(recipe), fingerprint(recipe));
  EXPECT_EQ(fingerprint(recipe).size(), 16u);
}

TEST(Fingerprint, tells_other_weights_of_the_same_shape) {
  const std::string mine = fingerprint(tiny::recipe(tiny::variant("llama_tied")));
  tiny::Recipe other = tiny::recipe(tiny::variant("llama_tied"));
  for (std::byte& byte : other.tensor("blk.1.ffn_down.weight").bytes) byte ^= std::byte{1};  // as from another run
  EXPECT_NE(fingerprint(other), mine);
  other = tiny::recipe(tiny::variant("llama_tied"));
  other.tensor("output_norm.weight").bytes[1] ^= std::byte{1};
  EXPECT_NE(fingerprint(other), mine);
}

TEST(Fingerprint, tells_other_formats_names_and_metadata) {
  const std::string mine = fingerprint(tiny::recipe(tiny::variant("llama_untied")));
  EXPECT_NE(fingerprint(gate_test::four_bit_recipe()), mine);
  tiny::Recipe other = tiny::recipe(tiny::variant("llama_untied"));
  other.tensor("blk.0.attn_q.weight").name = "blk.9.attn_q.weight";
  EXPECT_NE(fingerprint(other), mine);
  other = tiny::recipe(tiny::variant("llama_untied"));
  other.set("rope.freq_base", GgufType::f32, 500000.0);
  EXPECT_NE(fingerprint(other), mine);
}

}  // namespace
}  // namespace octalane
