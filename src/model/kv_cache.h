#pragma once

#include <cstdint>

#include "core/aligned_buffer.h"
#include "core/status.h"
#include "model/config.h"

namespace octalane {

/// Keys and values of the positions seen so far, IEEE halves. Pages are taken from the system as positions fill.
class KvCache {
 public:
  /// Room for `capacity` positions. Fails when capacity < 1 or the memory cannot be had.
  static Expected<KvCache> create(const ModelConfig& config, int64_t capacity);

  int64_t size() const { return size_; }
  int64_t capacity() const { return capacity_; }
  /// Bytes of the whole capacity.
  int64_t bytes() const { return static_cast<int64_t>(sizeof(uint16_t)) * (keys_.size() + values_.size()); }
  /// Forgets every position from `size` on.
  void truncate(int64_t size) { size_ = size < 0 ? 0 : (size < size_ ? size : size_); }

 private:
  friend class Model;
  KvCache() = default;

  int64_t row(int64_t layer, int64_t kv_head, int64_t position) const {
    return ((layer * kv_heads_ + kv_head) * capacity_ + position) * head_dim_;
  }

  int64_t layers_ = 0, kv_heads_ = 0, head_dim_ = 0, capacity_ = 0, size_ = 0;
  AlignedBuffer<uint16_t> keys_, values_;  // [layer][kv_head][capacity][head_dim]
};

}  // namespace octalane
