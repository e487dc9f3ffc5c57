// What hostile counts cost. A program of its own: it counts every byte that operator new hands out.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <new>

#include "files/files_testing.h"
#include "files/npy.h"
#include "files/safetensors.h"

namespace {
size_t allocated = 0;  // since the last reset
}

// Not inlined: a compiler that sees malloc() behind one and free() behind the other may warn of a mismatch.
[[gnu::noinline]] void* operator new(size_t size) {
  allocated += size;
  if (void* p = std::malloc(size)) return p;
  throw std::bad_alloc();
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, size_t) noexcept { std::free(p); }

namespace octalane {
namespace {

using testing::ExactBytes;
using testing::GgufBytes;

size_t bytes_to_parse(const GgufBytes& b, bool accepted) {
  const ExactBytes bytes(b.bytes());
  allocated = 0;
  EXPECT_EQ(GgufFile::parse(bytes.span()).has_value(), accepted);
  return allocated;
}

TEST(Memory, counts_are_not_believed_before_their_bytes_are_seen) {
  constexpr size_t kFile = 1 << 20;  // of zeros: room for many, none of them valid
  const std::string zeros(kFile, '\0');
  EXPECT_LT(bytes_to_parse(GgufBytes(0, kFile / 17).raw(zeros), false), 10'000u);
  EXPECT_LT(
      bytes_to_parse(GgufBytes(0, 1).key("k", GgufType::array).type(GgufType::string).u64(~0ull).raw(zeros), false),
      10'000u);
  EXPECT_LT(bytes_to_parse(GgufBytes(1, 0).text("t").u32(~0u).raw(zeros), false), 10'000u);
}

TEST(Memory, arrays_and_weights_are_not_copied) {
  const std::string megabyte(1 << 20, '\1');
  GgufBytes b(1, 2);
  b.key("bytes", GgufType::array).type(GgufType::u8).u64(megabyte.size()).raw(megabyte);
  b.key("texts", GgufType::array).type(GgufType::string).u64(10000);
  for (int i = 0; i < 10000; ++i) b.text("a token of the vocabulary");
  b.tensor("t", {1 << 20}, 24, 0).pad().raw(megabyte);
  EXPECT_LT(bytes_to_parse(b, true), 10'000u);
}

TEST(Memory, a_header_costs_a_small_multiple_of_its_bytes) {
  constexpr int kCount = 10000;
  GgufBytes b(kCount, kCount);
  for (int i = 0; i < kCount; ++i) b.key(std::to_string(i), GgufType::u8).u8(0);
  for (int i = 0; i < kCount; ++i) b.tensor(std::to_string(i), {}, 24, 32ull * static_cast<unsigned>(i));
  b.pad().raw(std::string(32 * kCount, '\0'));
  // Growing vectors count all their sizes, about twice the last.
  EXPECT_LT(bytes_to_parse(b, true), 16 * b.size());
}

std::string safetensors_bytes(const std::string& header, size_t data) {
  const uint64_t length = header.size();
  return std::string(reinterpret_cast<const char*>(&length), sizeof length) + header + std::string(data, 'd');
}

TEST(Memory, a_safetensors_header_costs_a_small_multiple_of_its_bytes_and_weights_nothing) {
  constexpr int kCount = 10000;
  std::string header = "{";
  for (int i = 0; i < kCount; ++i) {
    header += fmt::format(R"({}"{}":{{"dtype":"U8","shape":[100],"data_offsets":[{},{}]}})", i > 0 ? "," : "", i,
                          100 * i, 100 * (i + 1));
  }
  const ExactBytes bytes(safetensors_bytes(header + "}", 100 * kCount));
  allocated = 0;
  EXPECT_TRUE(SafetensorsFile::parse(bytes.span()));
  EXPECT_LT(allocated, 12 * header.size());
}

TEST(Memory, nested_json_is_refused_before_it_costs_anything) {
  const ExactBytes bytes(safetensors_bytes("{\"t\":{\"shape\":" + std::string(1 << 20, '['), 0));
  allocated = 0;
  EXPECT_FALSE(SafetensorsFile::parse(bytes.span()));
  EXPECT_LT(allocated, 10'000u);
}

TEST(Memory, a_shape_is_not_believed_before_its_bytes_are_seen) {
  const std::string dictionary = "{'descr': '<f4', 'fortran_order': False, 'shape': (1000000, 1000000), }";
  std::string text("\x93NUMPY\x01\x00", 8);
  text += {static_cast<char>(dictionary.size()), '\0'};
  const ExactBytes bytes(text + dictionary + std::string(64, '\0'));
  allocated = 0;
  EXPECT_FALSE(parse_npy(bytes.span(), "bad"));
  EXPECT_LT(allocated, 10'000u);
}

}  // namespace
}  // namespace octalane
