// The device that tests run on, and operands on it.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <optional>
#include <vector>

#include "cuda/linear.h"

namespace octalane::test {

/// A device whose product kernels are loaded; why there is none otherwise.
struct OnDevice {
  std::optional<cuda::DriverApi> api;
  std::optional<cuda::Session> session;
  std::optional<cuda::Products> products;
  std::optional<cuda::LinearKernels> kernels;  ///< with nominal rates
  std::optional<cuda::Stream> stream;
  std::string missing;

  static OnDevice& get() {
    static OnDevice device;
    return device;
  }
  OnDevice(const OnDevice&) = delete;

  /// Device memory that holds these bytes.
  cuda::Buffer upload(std::span<const std::byte> bytes) {
    auto buffer = session->upload(bytes);
    EXPECT_TRUE(buffer) << buffer.error().message;
    return std::move(*buffer);
  }
  template <class T>
  cuda::Buffer upload(const std::vector<T>& values) {
    return upload(std::as_bytes(std::span(values)));
  }
  template <class T>
  void download(std::vector<T>& to, const cuda::Buffer& from) {
    const Status copied = session->copy_out(std::as_writable_bytes(std::span(to)), from);
    EXPECT_TRUE(copied) << copied.error().message;
  }

 private:
  OnDevice() {
    if (const Status opened = open(); !opened) missing = opened.error().message;
  }
  Status open();
};

inline Status OnDevice::open() {
  auto functions = cuda::load_driver();
  if (!functions) return fail_with(functions);
  api = *functions;
  const auto devices = cuda::list_devices(*api);
  if (!devices) return fail_with(devices);
  if (devices->empty() || devices->front().capability != 90) return fail("no device of compute capability 9.0");
  auto opened = cuda::Session::open(*api, devices->front());
  if (!opened) return fail_with(opened);
  session.emplace(std::move(*opened));
  auto line = session->stream();
  if (!line) return fail_with(line);
  stream.emplace(std::move(*line));
  auto loaded = cuda::Products::load(*session);
  if (!loaded) return fail_with(loaded);
  products.emplace(std::move(*loaded));
  auto all = cuda::LinearKernels::load(*session);
  if (!all) return fail_with(all);
  kernels.emplace(std::move(*all));
  return {};
}

}  // namespace octalane::test
