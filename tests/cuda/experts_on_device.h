// Routing on the device that tests run on, and what its results are compared with.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "cuda/experts.h"
#include "cuda/host_routing.h"
#include "cuda/on_device.h"

namespace octalane::test {

inline const cuda::ExpertRouter& router() {
  static const auto loaded = cuda::ExpertRouter::load(*OnDevice::get().session);
  EXPECT_TRUE(loaded) << loaded.error().message;
  return *loaded;
}

class CudaExperts : public testing::Test {
 protected:
  void SetUp() override {
    if (const std::string& missing = OnDevice::get().missing; !missing.empty()) GTEST_SKIP() << missing;
    router();  // loaded before anything is captured
  }
};

inline void finish(const Status& enqueued) {
  ASSERT_TRUE(enqueued) << enqueued.error().message;
  const Status done = OnDevice::get().stream->synchronize();
  ASSERT_TRUE(done) << done.error().message;
}
template <class T>
void finish(const Expected<T>& enqueued) {
  ASSERT_TRUE(enqueued) << enqueued.error().message;
  finish(Status());
}

inline cuda::Buffer poisoned(int64_t bytes) {
  return OnDevice::get().upload(std::vector<std::byte>(static_cast<size_t>(bytes), std::byte{0xFF}));
}

/// Bytes of device memory from an address within a buffer on.
template <class T>
std::vector<T> part(const cuda::Buffer& buffer, cuda::Address at, size_t count) {
  std::vector<std::byte> bytes(static_cast<size_t>(buffer.bytes()));
  OnDevice::get().download(bytes, buffer);
  std::vector<T> values(count);
  const size_t first = static_cast<size_t>(at - buffer.address()), wanted = count * sizeof(T);
  EXPECT_LE(first + wanted, bytes.size());
  if (count > 0) std::memcpy(values.data(), bytes.data() + first, wanted);
  return values;
}

/// Choices, routed on the device.
struct Routed {
  cuda::Buffer choices, workspace;
  cuda::Routing routing;

  explicit Routed(const NamedChoices& from)
      : choices(OnDevice::get().upload(from.choices)), workspace(poisoned(cuda::routing_bytes(from.shape) + 256)) {
    const auto made = router().route(choices.address(), from.shape,
                                     {workspace.address(), cuda::routing_bytes(from.shape)}, *OnDevice::get().stream);
    finish(made);
    if (made) routing = *made;
  }
};

/// Sums of outputs of slots by weight, as cuda/experts.h has them.
inline std::vector<float> combined(const HostRouting& host, const cuda::RoutingShape& shape,
                                   const std::vector<float>& weights, int64_t rows,
                                   const std::function<float(int64_t choice, int64_t row)>& output) {
  std::vector<float> y(static_cast<size_t>(shape.tokens * rows));
  for (int64_t i = 0; i < shape.choices(); ++i) {
    if (host.slot_of[static_cast<size_t>(i)] < 0) continue;
    for (int64_t n = 0; n < rows; ++n) {
      float& sum = y[static_cast<size_t>(i / shape.top_k * rows + n)];
      sum = std::fma(weights[static_cast<size_t>(i)], output(i, n), sum);
    }
  }
  return y;
}

inline std::vector<float> random_values(size_t count, uint32_t seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<float> uniform(-1, 1);
  std::vector<float> values(count);
  for (float& value : values) value = uniform(random);
  return values;
}

}  // namespace octalane::test
