#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <new>

namespace octalane {

inline constexpr size_t kAlignment = 64;  ///< one cache line, one AVX-512 vector, one AMX tile row

/// Uninitialised storage for `count` trivially copyable elements, 64-byte aligned, freed with its owner.
template <class T>
class AlignedBuffer {
 public:
  AlignedBuffer() = default;
  explicit AlignedBuffer(int64_t count)
      : data_(static_cast<T*>(::operator new (static_cast<size_t>(count) * sizeof(T), std::align_val_t{kAlignment}))),
        size_(count) {}

  T* data() const { return data_.get(); }
  int64_t size() const { return size_; }
  T& operator[](int64_t i) const { return data_.get()[i]; }

  /// Grows to at least `count` elements; the old content is lost when it grows.
  void reserve_discarding(int64_t count) {
    if (count > size_) *this = AlignedBuffer(count);
  }

 private:
  struct Free {
    void operator()(T* p) const { ::operator delete (p, std::align_val_t{kAlignment}); }
  };
  std::unique_ptr<T, Free> data_;
  int64_t size_ = 0;
};

}  // namespace octalane
