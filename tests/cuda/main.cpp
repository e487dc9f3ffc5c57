// Runs the tests of CUDA and says whether a device took part.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include "cuda/probe.h"

namespace {

/// Why no test reached a device; "" when one did.
std::string why_absent() {
  const auto api = octalane::cuda::load_driver();
  if (!api) return api.error().message;
  const auto devices = octalane::cuda::list_devices(*api);
  if (!devices) return devices.error().message;
  return devices->empty() ? "no device" : octalane::cuda::why_not(devices->front());
}

}  // namespace

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  const int failed = RUN_ALL_TESTS();
  if (testing::GTEST_FLAG(list_tests)) return failed;
  const std::string why = why_absent();
  fmt::print("{}\n", why.empty() ? "Covered: cuda" : fmt::format("Covered: none; not here: cuda ({})", why));
  return failed;
}
