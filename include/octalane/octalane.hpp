// octalane C++ API: the C API with owners and results. Header only; it needs nothing but octalane.h and tl::expected.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <tl/expected.hpp>
#include <vector>

#include "octalane/octalane.h"

namespace octalane {
inline namespace v1 {

/// One line: what, where, wanted, got.
struct Failure {
  std::string message;
};

template <class T>
using Result = tl::expected<T, Failure>;

namespace detail {

inline tl::unexpected<Failure> last_failure() { return tl::make_unexpected(Failure{octalane_last_error()}); }

template <class T, void (*free)(T*)>
struct Free {
  void operator()(T* object) const { free(object); }
};
template <class T, void (*free)(T*)>
using Owner = std::unique_ptr<T, Free<T, free>>;

}  // namespace detail

/// The machine as one caller uses it. Not to be used by two threads at once.
class Context {
 public:
  static Result<Context> create(const octalane_options& options = {}) {
    octalane_context* handle = nullptr;
    if (octalane_context_create(&options, &handle) != OCTALANE_OK) return detail::last_failure();
    return Context(handle);
  }
  octalane_context* get() const { return handle_.get(); }

 private:
  explicit Context(octalane_context* handle) : handle_(handle) {}
  detail::Owner<octalane_context, octalane_context_free> handle_;
};

/// An open model: a GGUF file, a .safetensors file or a model folder.
class File {
 public:
  static Result<File> open(const std::string& path) {
    octalane_file* handle = nullptr;
    if (octalane_file_open(path.c_str(), &handle) != OCTALANE_OK) return detail::last_failure();
    return File(handle);
  }
  const octalane_file* get() const { return handle_.get(); }

 private:
  explicit File(octalane_file* handle) : handle_(handle) {}
  detail::Owner<octalane_file, octalane_file_free> handle_;
};

/// A weight matrix W[rows, cols], packed for a context's machine.
class Weights {
 public:
  static Result<Weights> bind(const Context& context, const File& file, const std::string& tensor) {
    octalane_weights* handle = nullptr;
    if (octalane_weights_bind_tensor(context.get(), file.get(), tensor.c_str(), &handle) != OCTALANE_OK) {
      return detail::last_failure();
    }
    return Weights(handle);
  }
  /// `blocks` holds rows x cols weights in the blocks of `format`; it may be freed after.
  static Result<Weights> bind(const Context& context, const std::string& format, std::span<const std::byte> blocks,
                              int64_t rows, int64_t cols) {
    octalane_weights* handle = nullptr;
    if (octalane_weights_bind(context.get(), format.c_str(), blocks.data(), blocks.size(), rows, cols, &handle) !=
        OCTALANE_OK) {
      return detail::last_failure();
    }
    return Weights(handle);
  }

  /// The same for a format whose weights lie in several arrays: codes, scales, biases (octalane_weights_bind_parts).
  static Result<Weights> bind(const Context& context, const std::string& format,
                              std::span<const std::span<const std::byte>> parts, int64_t rows, int64_t cols) {
    std::vector<const void*> data;
    std::vector<size_t> bytes;
    for (const std::span<const std::byte> part : parts) {
      data.push_back(part.data());
      bytes.push_back(part.size());
    }
    octalane_weights* handle = nullptr;
    if (octalane_weights_bind_parts(context.get(), format.c_str(), data.data(), bytes.data(), data.size(), rows, cols,
                                    &handle) != OCTALANE_OK) {
      return detail::last_failure();
    }
    return Weights(handle);
  }

  int64_t rows() const { return octalane_weights_rows(handle_.get()); }
  int64_t cols() const { return octalane_weights_cols(handle_.get()); }

  /// The name of the kernel that multiplies this many tokens.
  Result<std::string> kernel(const Context& context, int64_t tokens) const {
    const char* name = nullptr;
    if (octalane_weights_kernel(context.get(), handle_.get(), tokens, &name) != OCTALANE_OK) {
      return detail::last_failure();
    }
    return std::string(name);
  }

  /// y[tokens, rows] = x[tokens, cols] W^T; row strides in elements.
  Result<void> multiply(const Context& context, const float* x, int64_t tokens, int64_t x_stride, float* y,
                        int64_t y_stride) const {
    if (octalane_multiply(context.get(), handle_.get(), x, tokens, x_stride, y, y_stride) != OCTALANE_OK) {
      return detail::last_failure();
    }
    return {};
  }

 private:
  explicit Weights(octalane_weights* handle) : handle_(handle) {}
  detail::Owner<octalane_weights, octalane_weights_free> handle_;
};

}  // namespace v1
}  // namespace octalane
