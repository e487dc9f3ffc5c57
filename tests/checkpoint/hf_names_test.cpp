#include "checkpoint/hf_names.h"

#include <gtest/gtest.h>

namespace octalane {
namespace {

TEST(HfNames, translate_both_ways) {
  for (const auto& [path, role] : {std::pair{"model.embed_tokens.weight", "token_embd.weight"},
                                   {"model.norm.weight", "output_norm.weight"},
                                   {"lm_head.weight", "output.weight"},
                                   {"model.layers.0.input_layernorm.weight", "blk.0.attn_norm.weight"},
                                   {"model.layers.31.self_attn.o_proj.weight", "blk.31.attn_output.weight"},
                                   {"model.layers.7.self_attn.k_proj.bias", "blk.7.attn_k.bias"},
                                   {"model.layers.7.mlp.down_proj.weight", "blk.7.ffn_down.weight"}}) {
    EXPECT_EQ(role_of_path(path), role);
    EXPECT_EQ(path_of_role(role), path);
  }
}

TEST(HfNames, know_no_others) {
  for (const char* path : {"", ".", "weight", "model.layers..mlp.up_proj.weight", "model.layers.x.mlp.up_proj.weight",
                           "model.layers.01.mlp.up_proj.weight", "model.layers.1234567890.mlp.up_proj.weight",
                           "model.layers.3", "model.layers.3.", "model.layers.3.mlp.up_proj", "blk.0.attn_q.weight",
                           "model.layers.3.mlp.experts.weight", "model.embed_tokens.scales"}) {
    EXPECT_EQ(role_of_path(path), "") << path;
  }
  EXPECT_EQ(path_of_role("rope_freqs.weight"), "");
  EXPECT_EQ(path_of_role("model.norm.weight"), "");
}

}  // namespace
}  // namespace octalane
