// What the driver is asked for, and what it is never asked for.
#include "cuda/tensor_map.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "cuda/fake_driver.h"

namespace octalane::test {
namespace {

using cuda::TensorElement;
using testing::ElementsAre;
using testing::HasSubstr;

struct Asked {
  TensorElement element;
  uint32_t rank;
  uintptr_t address;
  std::vector<uint64_t> dimensions, strides;
  std::vector<uint32_t> box;
  std::vector<int> modes;
};
std::vector<Asked> asked;

cuda::DriverApi driver(const char* failing = "") {
  asked.clear();
  cuda::DriverApi api = fake_driver(failing);
  api.tensor_map_encode_tiled = [](cuda::TensorMap* map, TensorElement element, uint32_t rank, void* address,
                                   const uint64_t* dimensions, const uint64_t* strides, const uint32_t* box,
                                   const uint32_t*, int interleave, int swizzle, int l2, int fill) {
    asked.push_back({element,
                     rank,
                     reinterpret_cast<uintptr_t>(address),
                     {dimensions, dimensions + 2},
                     {strides, strides + 1},
                     {box, box + 2},
                     {interleave, swizzle, l2, fill}});
    map->opaque[0] = 42;
    return fake_result("cuTensorMapEncodeTiled");
  };
  return api;
}

TEST(TensorMap, is_made_with_columns_first) {
  const cuda::DriverApi api = driver();
  const auto map = cuda::tensor_map(api, 0x7000, TensorElement::bf16, 300, 4096, 8192, 128, 64);
  ASSERT_TRUE(map) << map.error().message;
  EXPECT_EQ(map->opaque[0], 42u);
  ASSERT_EQ(asked.size(), 1u);
  EXPECT_EQ(asked[0].element, TensorElement::bf16);
  EXPECT_EQ(asked[0].rank, 2u);
  EXPECT_EQ(asked[0].address, 0x7000u);
  EXPECT_THAT(asked[0].dimensions, ElementsAre(4096, 300));
  EXPECT_THAT(asked[0].strides, ElementsAre(8192));
  EXPECT_THAT(asked[0].box, ElementsAre(64, 128));
  EXPECT_THAT(asked[0].modes, ElementsAre(0, 3, 3, 0)) << "no interleave, swizzle 128 B, L2 256 B, zero fill";
}

TEST(TensorMap, that_the_device_cannot_have_is_refused_before_the_driver_is_asked) {
  const cuda::DriverApi api = driver();
  const auto error = [&](cuda::Address address, TensorElement element, int64_t rows, int64_t cols, int64_t stride,
                         int box_rows, int box_cols) {
    const auto map = cuda::tensor_map(api, address, element, rows, cols, stride, box_rows, box_cols);
    return map ? std::string() : map.error().message;
  };
  EXPECT_EQ(error(8, TensorElement::u8, 64, 128, 128, 64, 128),
            "cuda: tensor map: wanted an address that is a multiple of 16, got 0x8");
  EXPECT_EQ(error(16, TensorElement::u8, 64, 120, 120, 64, 128),
            "cuda: tensor map: wanted a stride of at least 120 bytes that is a multiple of 16, got 120");
  EXPECT_THAT(error(16, TensorElement::bf16, 64, 128, 128, 64, 64), HasSubstr("a stride of at least 256 bytes"));
  EXPECT_THAT(error(16, TensorElement::u8, 0, 128, 128, 64, 128), HasSubstr("got 0 x 128"));
  EXPECT_THAT(error(16, TensorElement::u8, 64, 128, 128, 257, 128), HasSubstr("1 to 256 rows, got 257"));
  EXPECT_THAT(error(16, TensorElement::bf16, 64, 128, 256, 64, 128), HasSubstr("at most 128, got 128 x 2"));
  EXPECT_THAT(error(16, TensorElement::u8, 64, 128, 128, 64, 120), HasSubstr("a multiple of 16 bytes"));
  EXPECT_TRUE(asked.empty());
  EXPECT_EQ(error(16, TensorElement::u8, 64, 128, 128, 64, 128), "");
}

TEST(TensorMap, that_the_driver_refuses_is_its_error) {
  const cuda::DriverApi api = driver("cuTensorMapEncodeTiled");
  const auto map = cuda::tensor_map(api, 16, TensorElement::u8, 64, 128, 128, 64, 128);
  ASSERT_FALSE(map);
  EXPECT_EQ(map.error().message, "cuda: cuTensorMapEncodeTiled of 64 x 128: CUDA_ERROR_UNKNOWN");
}

}  // namespace
}  // namespace octalane::test
