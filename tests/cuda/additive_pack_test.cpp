// How weights of codebooks are packed, and which kernel multiplies them.
#include <gmock/gmock.h>

#include "core/half.h"
#include "cuda/additive_product.h"
#include "cuda/codebook_operands.h"

namespace octalane::test {
namespace {

using cuda::CodebookRecords;

TEST(CodebookRecords, every_thread_has_the_codes_of_its_rows_and_columns_and_padding_is_zero) {
  for (const NamedSpec& spec : codebook_specs()) {
    SCOPED_TRACE(spec.name);
    const int64_t rows = 70, cols = 160;
    const Planes planes = random_planes(spec.spec, rows, cols, 1);
    const auto records = pack(planes);
    ASSERT_TRUE(records) << records.error().message;
    const int books = spec.spec.code.books, vector = spec.spec.code.vector;
    const size_t bytes = static_cast<size_t>(cuda::code_bytes_of_thread(books, vector));
    ASSERT_EQ(records->padded_rows, 128);
    ASSERT_EQ(records->padded_cols, 256);
    ASSERT_EQ(records->codes.size(), 2 * 4 * 128 * bytes);
    for (size_t at = 0; at < records->codes.size(); ++at) {
      const size_t byte = at % bytes, thread = at / bytes % 128, record = at / bytes / 128 % 4,
                   block = at / bytes / 512;
      const size_t book = byte % books, h = byte / books % 2, codeword = byte / books / 2;
      const auto row = static_cast<int64_t>(block * 64 + thread / 32 * 16 + thread % 32 / 4 + 8 * h);
      const size_t column = record * 64 + codeword * vector / 8 * 32 + thread % 4 * 8 + codeword * vector % 8;
      uint8_t wanted = 0;
      if (row < rows && column < static_cast<size_t>(cols)) {
        wanted = planes.row(row).codes[column / static_cast<size_t>(vector) * static_cast<size_t>(books) + book];
      }
      ASSERT_EQ(static_cast<uint8_t>(records->codes[at]), wanted) << row << ", " << column << ", book " << book;
    }
  }
}

TEST(CodebookRecords, scales_of_a_group_lie_in_pairs_of_rows_and_codebooks_as_they_are) {
  for (const NamedSpec& spec : codebook_specs()) {
    SCOPED_TRACE(spec.name);
    const int64_t rows = 70, cols = 160, group = spec.spec.scale.group;
    const Planes planes = random_planes(spec.spec, rows, cols, 2);
    const auto records = pack(planes);
    ASSERT_TRUE(records) << records.error().message;
    const int64_t groups = 256 / group;
    ASSERT_EQ(records->scales.size(), static_cast<size_t>(2 * groups * 64));
    for (int64_t at = 0; at < 2 * groups * 64; ++at) {
      const int64_t p = at % 64, g = at / 64 % groups,
                    row = at / 64 / groups * 64 + p / 16 * 16 + p % 2 * 8 + p % 16 / 2;
      const float wanted = row < rows && g < planes.scales_per_row() ? planes.row(row).scale[g] : 0.0f;
      ASSERT_EQ(f16_to_f32(records->scales[static_cast<size_t>(at)]), wanted) << row << ", group " << g;
    }
    const auto values = planes.codebook_values();
    ASSERT_EQ(records->codebooks.size(), values.size());
    for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(f16_to_f32(records->codebooks[i]), values[i]);
  }
}

TEST(CodebookRecords, a_lane_multiplies_the_columns_that_it_decodes) {
  for (int k = 0; k < 32; ++k) {
    const int at = cuda::codeword_position(k), lane = at % 8 / 2;
    EXPECT_EQ(lane, k / 8) << k;
    EXPECT_EQ(at / 16, k % 8 / 4) << k;               // the instruction
    EXPECT_EQ(at % 16 / 8 * 2 + at % 2, k % 4) << k;  // the element
  }
}

TEST(CodebookRecords, refuses_what_has_no_codebooks_or_no_binary16) {
  const WeightSpec plain{{.map = CodeMap::offset, .bits = 4, .zero = 8}, {.type = ScaleType::f16, .group = 32}};
  EXPECT_THAT(cuda::why_no_codebooks(plain), testing::HasSubstr("no codebooks"));
  WeightSpec wide = codebook_specs().front().spec;
  wide.scale.type = ScaleType::bf16;
  EXPECT_THAT(cuda::why_no_codebooks(wide), testing::HasSubstr("f16"));
  const WeightSpec spec = codebook_specs().front().spec;
  std::vector<float> codebooks(spec.code.codebook_values(), 0.5f);
  codebooks[77] = 0.1f;
  const Planes planes(spec, 1, 32, codebooks.data());
  const auto records = pack(planes);
  ASSERT_FALSE(records);
  EXPECT_THAT(records.error().message, testing::HasSubstr("0.1"));
}

TEST(AdditiveKernels, the_smallest_tile_that_holds_the_tokens_is_chosen) {
  CodebookRecords weights;
  weights.spec = codebook_specs().front().spec;
  const auto chosen = [&](int64_t tokens) { return cuda::name(*cuda::choose_additive_kernel(weights, tokens)); };
  EXPECT_EQ(chosen(1), "bf16_gemm_128x32x64_cuda-codebook-m2v8");
  EXPECT_EQ(chosen(33), "bf16_gemm_128x64x64_cuda-codebook-m2v8");
  EXPECT_EQ(chosen(128), "bf16_gemm_128x128x64_cuda-codebook-m2v8");
  EXPECT_EQ(chosen(1024), "bf16_gemm_128x256x64_cuda-codebook-m2v8");
  weights.split = 2;
  EXPECT_EQ(chosen(64), "bf16_gemm_64x64x64_cuda-codebook-m2v8");
  EXPECT_EQ(chosen(1024), "bf16_gemm_128x256x64_cuda-codebook-m2v8");
  weights.spec.code.map = CodeMap::offset;
  weights.spec.code.books = 0;
  EXPECT_EQ(cuda::choose_additive_kernel(weights, 1), nullptr);
}

}  // namespace
}  // namespace octalane::test
