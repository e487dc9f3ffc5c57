// A driver of two made-up devices. One call at a time can be told to fail.
#pragma once

#include "cuda/driver.h"

namespace octalane::test {

inline constexpr int kOutOfMemory = 2, kUnknownError = 999, kNamelessError = 12345;

/// `failing` is a name as "cuDeviceGetCount", or "" for none; `with` what it then returns.
cuda::DriverApi fake_driver(const char* failing = "", int with = kUnknownError, int devices = 2);

}  // namespace octalane::test
