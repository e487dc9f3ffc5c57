// A handle of the driver that is given back with its owner.
#pragma once

#include <memory>
#include <type_traits>

#include "cuda/driver.h"

namespace octalane::cuda {

/// `destroy` is the function of the table that gives the handle back.
template <auto destroy>
struct Destroyer {
  const DriverApi* api = nullptr;
  template <class T>
  void operator()(T* handle) const {
    (api->*destroy)(handle);
  }
};

/// The driver table must outlive it.
template <class Handle, auto destroy>
using Owned = std::unique_ptr<std::remove_pointer_t<Handle>, Destroyer<destroy>>;

}  // namespace octalane::cuda
