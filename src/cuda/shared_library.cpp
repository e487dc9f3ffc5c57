#include "cuda/shared_library.h"

#include <dlfcn.h>

namespace octalane::cuda {

Expected<SharedLibrary> SharedLibrary::open(const char* name, const char* owner) {
  void* const handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL);
  if (handle != nullptr) return SharedLibrary(name, handle);
  const char* const why = ::dlerror();
  return fail("cuda: wanted {} {}, got: {}", owner, name, why != nullptr ? why : "no reason");
}

void* SharedLibrary::find(const char* symbol) {
  void* const found = ::dlsym(handle_, symbol);
  if (found == nullptr && missing_.empty()) missing_ = symbol;
  return found;
}

Status SharedLibrary::complete(const char* wanted) const {
  if (missing_.empty()) return {};
  return fail("cuda: {} has no {}: wanted {}", name_, missing_, wanted);
}

}  // namespace octalane::cuda
