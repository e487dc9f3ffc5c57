#include "cuda/shared_library.h"

#include <dlfcn.h>

namespace octalane::cuda {

Expected<SharedLibrary> SharedLibrary::open(const char* name) {
  void* const handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return SharedLibrary(name, handle);
  const char* const why = ::dlerror();
  return fail("cuda: wanted the NVIDIA driver's {}, got: {}", name, why != nullptr ? why : "no reason");
}

void* SharedLibrary::find(const char* symbol) {
  void* const found = ::dlsym(handle_, symbol);
  if (found == nullptr && missing_.empty()) missing_ = symbol;
  return found;
}

Status SharedLibrary::complete() const {
  if (missing_.empty()) return {};
  return fail("cuda: {} has no {}: wanted the driver of CUDA 12 or newer", name_, missing_);
}

}  // namespace octalane::cuda
