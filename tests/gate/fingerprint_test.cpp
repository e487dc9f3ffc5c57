#include "gate/fingerprint.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "files/safetensors.h"
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

TEST(Fingerprint, tells_other_codes_codebooks_and_scales) {
  std::ifstream file(std::string(OCTALANE_TEST_DATA) + "/checkpoint/golden/codegemm/model.safetensors",
                     std::ios::binary);
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  const std::string path = testing::TempDir() + "/octalane_fingerprint_" + std::to_string(::getpid()) + ".safetensors";
  const auto fingerprint_of = [&](const std::vector<char>& changed) {
    std::ofstream(path, std::ios::binary).write(changed.data(), static_cast<std::streamsize>(changed.size()));
    const Expected<Checkpoint> checkpoint = Checkpoint::open(path);
    EXPECT_TRUE(checkpoint) << checkpoint.error().message;
    return model_fingerprint(*checkpoint);
  };
  const std::string mine = fingerprint_of(bytes);
  const SafetensorsFile parts = *SafetensorsFile::parse(std::as_bytes(std::span(bytes)));
  for (const char* part : {"codes", "codebooks", "scales"}) {
    const auto* at =
        reinterpret_cast<const char*>(parts.find_tensor(std::string("model.layers.0.mlp.up_proj.") + part)->data);
    std::vector<char> changed = bytes;
    changed[static_cast<size_t>(at - bytes.data())] ^= 1;
    EXPECT_NE(fingerprint_of(changed), mine) << part;
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace octalane
