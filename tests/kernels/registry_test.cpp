#include <set>

#include "kernels/all_kernels.h"

namespace octalane::test {
namespace {

TEST(Registry, scalar_is_first_and_always_there) {
  ASSERT_FALSE(isa_tables().empty());
  EXPECT_STREQ(isa_tables()[0]->name, "scalar");
  EXPECT_EQ(isa_tables()[0]->unavailable(), "");
  EXPECT_EQ(find_isa("scalar"), isa_tables()[0]);
  EXPECT_EQ(find_isa("z80"), nullptr);
}

TEST(Registry, scalar_has_a_gemm_of_every_staged_type_in_use_and_every_form) {
  std::set<std::string> kinds;
  for (const Kernel& kernel : find_isa("scalar")->kernels) {
    kinds.insert(std::string(name(kernel.staged)) + (kernel.op == Op::gemm ? " gemm" : " gemv"));
  }
  EXPECT_EQ(kinds, (std::set<std::string>{"bf16 gemm", "bf16 gemv", "s8.group gemm", "s8.group gemv", "s8.nested gemm",
                                          "s8.nested gemv", "s8.row gemm", "s8.xblock gemm", "s8.block gemm",
                                          "f8.group gemm", "f8.row gemm"}));
  for (const IsaTable* isa : isa_tables()) {
    for (const Kernel& kernel : isa->kernels) {
      EXPECT_TRUE(kinds.contains(std::string(name(kernel.staged)) + " gemm")) << name(kernel);
    }
  }
  for (const ActivationForm form : {ActivationForm::bf16_as_f32, ActivationForm::s8, ActivationForm::bf16_tiles,
                                    ActivationForm::s8_tiles, ActivationForm::e4m3}) {
    EXPECT_EQ(quantizer(*find_isa("scalar"), form).form, form);
  }
}

TEST(Registry, an_instruction_set_without_a_quantizer_borrows_scalars) {
  const IsaTable bare{.name = "bare", .unavailable = nullptr, .kernels = {}, .quantizers = {}, .attend = nullptr};
  EXPECT_EQ(&quantizer(bare, ActivationForm::s8), &quantizer(*find_isa("scalar"), ActivationForm::s8));
}

TEST(Registry, an_extension_takes_what_it_lacks_from_the_instruction_set_it_extends) {
  for (const IsaTable* isa : isa_tables()) {
    if (isa->extends == nullptr) continue;
    const IsaTable* base = find_isa(isa->extends);
    ASSERT_NE(base, nullptr) << isa->name;
    EXPECT_NE(base, isa);
  }
  const IsaTable bare{.name = "bare", .extends = "scalar", .unavailable = nullptr};
  EXPECT_EQ(attend(bare), find_isa("scalar")->attend);
  EXPECT_EQ(&quantizer(bare, ActivationForm::s8), &quantizer(*find_isa("scalar"), ActivationForm::s8));
}

TEST(Registry, names_say_what_the_row_says_and_no_two_are_equal) {
  std::set<std::string> names;
  for (const IsaTable* isa : isa_tables()) {
    for (const Kernel& kernel : isa->kernels) {
      EXPECT_STREQ(kernel.isa, isa->name);
      EXPECT_TRUE(names.insert(name(kernel)).second) << name(kernel);
      EXPECT_TRUE(name(kernel).starts_with(name(kernel.staged))) << name(kernel);
      EXPECT_TRUE(name(kernel).ends_with(isa->name)) << name(kernel);
    }
  }
  Kernel kernel;
  kernel.staged = StagedType::s8_group;
  kernel.op = Op::gemv;
  kernel.isa = "abacus";
  kernel.tile = {.m = 4, .n = 16, .k = 32};
  EXPECT_EQ(name(kernel), "s8.group_gemv_4x16x32_abacus");
}

TEST(Registry, rows_are_complete) {
  for (const IsaTable* isa : isa_tables()) {
    EXPECT_NE(attend(*isa), nullptr);
    for (const Kernel& kernel : isa->kernels) {
      SCOPED_TRACE(name(kernel));
      EXPECT_TRUE(kernel.run && kernel.supports && kernel.scratch_bytes && kernel.groups);
      EXPECT_GT(kernel.nominal_ops_per_clock, 0);
      EXPECT_NE(std::string_view(kernel.instruction), "");
      EXPECT_GE(kernel.max_tokens, 1);
      EXPECT_EQ(quantizer(*isa, kernel.form).form, kernel.form);
    }
  }
}

TEST(Registry, a_product_of_codebooks_takes_at_most_2_MiB_a_thread_and_never_room_for_the_matrix) {
  const WeightSpec spec = spec_named("m2v8_g128").spec;
  for (const IsaTable* isa : isa_tables()) {
    for (const Kernel& kernel : isa->kernels) {
      for (const int64_t tokens : {1, 16, 128, 512}) {
        const Problem problem{tokens, 14336, 4096, spec, kernel.staged};
        if (tokens > kernel.max_tokens || !kernel.supports(problem).empty()) continue;
        EXPECT_LE(kernel.scratch_bytes(problem), 2 << 20) << name(kernel) << " " << tokens;
      }
    }
  }
}

/// The reason of scalar's kernels of one lane. What scalar cannot serve nobody can, for the same reason; another kernel
/// may refuse more.
std::string reason(StagedType staged, const WeightSpec& spec, int64_t cols) {
  std::string wanted;
  for (const IsaTable* isa : isa_tables()) {
    for (const Kernel& kernel : isa->kernels) {
      if (kernel.staged != staged) continue;
      const std::string why =
          kernel.supports({.tokens = 1, .rows = 8, .cols = cols, .weights = spec, .staged = staged});
      if (isa == isa_tables()[0]) {
        wanted = why;
      } else if (!wanted.empty()) {
        EXPECT_EQ(why, wanted) << name(kernel);
      }
    }
  }
  return wanted;
}

TEST(Supports, serves_every_kind_of_weights_but_floats_as_integers) {
  for (const NamedSpec& spec : all_specs()) {
    EXPECT_EQ(reason(StagedType::bf16, spec.spec, 256), "") << spec.name;
    const bool has_codes = spec.spec.code.has_integer_levels() || spec.spec.code.is_codebook();
    const std::string why = reason(StagedType::s8_group, spec.spec, 256);
    EXPECT_EQ(why, has_codes ? "" : "weights are floats: there are no integer codes to multiply");
  }
}

TEST(Supports, integer_sub_scales_and_re_encoding_have_their_own_wants) {
  EXPECT_EQ(reason(StagedType::s8_nested, spec_named("u4_g32_nested_bias").spec, 256), "");
  EXPECT_EQ(reason(StagedType::s8_nested, spec_named("u4_g32_f16_bias").spec, 256),
            "scales are not nested: there are no integer sub-scales");
  for (const StagedType staged : {StagedType::s8_row, StagedType::s8_xblock, StagedType::s8_block}) {
    EXPECT_EQ(reason(staged, spec_named("u4_g32_f16_bias").spec, 96), "");
    EXPECT_EQ(reason(staged, spec_named("u8_zero128_g32_f16").spec, 256),
              "codes of 8 bits: re-encoding them would lose more than they do, use s8.group");
  }
}

TEST(Supports, codebooks_have_one_int8_lane_and_their_own_wants) {
  WeightSpec spec = spec_named("m2v8_g128").spec;
  EXPECT_EQ(reason(StagedType::s8_group, spec, 576), "");  // the last group may be shorter
  EXPECT_EQ(reason(StagedType::s8_group, spec, 48), "48 columns, wanted a multiple of 32");
  for (const StagedType staged : {StagedType::s8_row, StagedType::s8_xblock, StagedType::s8_block}) {
    EXPECT_EQ(reason(staged, spec, 256), "codebooks: the int8 lane has one unit for all of them, use s8.group");
  }
  spec.code.vector = 16;
  EXPECT_EQ(reason(StagedType::bf16, spec, 256),
            "2 codebooks of 16 values and codes of 8 bits, wanted 1 or 2, 4 or 8, and 8");
}

TEST(Supports, e4m3_lanes_want_weights_that_e4m3_holds) {
  for (const StagedType staged : {StagedType::f8_group, StagedType::f8_row}) {
    for (const char* name : {"e4m3_g32_e8m0", "table_g32_e8m0half", "table_g32_e8m0"}) {
      EXPECT_EQ(reason(staged, spec_named(name).spec, 96), "") << name;
    }
    EXPECT_EQ(reason(staged, spec_named("f16").spec, 96), "weights are floats without a scale: no f8 lane");
    EXPECT_EQ(reason(staged, spec_named("u8_zero128_g32_f16").spec, 96), "weights are integers: no f8 lane");
    EXPECT_EQ(reason(staged, spec_named("e4m3_g16_bf16_bias").spec, 96), "weights have a bias: no f8 lane");
    EXPECT_EQ(reason(staged, spec_named("table_g32_f16").spec, 96), "level -127 is no E4M3 value: no f8 lane");
  }
  EXPECT_EQ(reason(StagedType::f8_group, spec_named("e4m3_g64_f32").spec, 128), "");
  EXPECT_EQ(reason(StagedType::f8_row, spec_named("e4m3_g64_f32").spec, 128),
            "scales that need not be powers of two: they do not move to one per row, use f8.group");
  WeightSpec powers = spec_named("table_g32_e8m0").spec;
  powers.scale.type = ScaleType::bf16;  // as mlx-mxfp4 is read
  EXPECT_NE(reason(StagedType::f8_row, powers, 128), "");
  powers.scale.powers_of_two = true;
  EXPECT_EQ(reason(StagedType::f8_row, powers, 128), "");
}

TEST(Supports, matrix_tiles_want_whole_groups_of_signed_levels) {
  const IsaTable* amx = find_isa("amx");
  if (amx == nullptr) GTEST_SKIP() << "not in this build";
  for (const Kernel& kernel : amx->kernels) {
    if (kernel.staged != StagedType::s8_group) continue;
    const auto why = [&](const char* spec) {
      return kernel.supports(
          {.tokens = 1, .rows = 8, .cols = 256, .weights = spec_named(spec).spec, .staged = kernel.staged});
    };
    EXPECT_EQ(why("u8_zero128_g32_f16"), "");
    EXPECT_EQ(why("u8_g64_bf16_bias"), "levels of 0 to 255, wanted signed bytes");
    EXPECT_EQ(why("u6_zero32_g16_nested"), "groups of 16 columns, wanted at least 32");
  }
}

TEST(Supports, says_what_it_wanted_and_what_it_got) {
  const WeightSpec good = spec_named("u4_g32_nested_bias").spec;
  const auto why = [&](auto change, int64_t cols = 256) {
    WeightSpec spec = good;
    change(spec);
    return reason(StagedType::s8_group, spec, cols);
  };
  EXPECT_EQ(why([](WeightSpec& s) { s.code.bits = 7; }), "codes of 7 bits, wanted 2, 3, 4, 5, 6 or 8");
  EXPECT_EQ(why([](WeightSpec& s) { s.code.map = CodeMap::table, s.code.bits = 3; }),
            "table codes of 3 bits, wanted 4");
  EXPECT_EQ(why([](WeightSpec& s) { s.code.map = CodeMap::f16; }), "float elements of 4 bits, wanted 16");
  EXPECT_EQ(why([](WeightSpec& s) { s.scale.group = 24; }), "groups of 24 columns, wanted 16, 32, 64 or 128");
  EXPECT_EQ(why([](WeightSpec& s) { s.scale.super = 512; }),
            "super-groups of 512 columns, wanted a multiple of 32 up to 256");
  EXPECT_EQ(why([](WeightSpec& s) { s.scale.super = 48; }),
            "super-groups of 48 columns, wanted a multiple of 32 up to 256");
  EXPECT_EQ(why([](WeightSpec& s) { s.scale.type = ScaleType::none; }), "codes without a scale");
  EXPECT_EQ(why([](WeightSpec&) {}, 96), "96 columns, wanted a multiple of 256");
}

}  // namespace
}  // namespace octalane::test
