// A vendor's library opened at run time, and functions of it by name.
#pragma once

#include <string>

#include "core/status.h"

namespace octalane::cuda {

/// Opened until the process ends: a driver does not take being closed well.
class SharedLibrary {
 public:
  /// `owner` is whose library the error says was wanted.
  static Expected<SharedLibrary> open(const char* name, const char* owner = "the NVIDIA driver's");

  /// Points `function` to the symbol; null, and complete() fails, when the library has none of that name.
  template <class Function>
  void bind(Function*& function, const char* symbol) {
    function = reinterpret_cast<Function*>(find(symbol));
  }
  /// Whether everything asked for was there; the error says what was wanted instead.
  Status complete(const char* wanted = "the driver of CUDA 12 or newer") const;

 private:
  SharedLibrary(std::string name, void* handle) : name_(std::move(name)), handle_(handle) {}
  void* find(const char* symbol);

  std::string name_;
  void* handle_;
  std::string missing_;
};

}  // namespace octalane::cuda
