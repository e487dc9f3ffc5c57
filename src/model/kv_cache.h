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

  /// The first key or value of a head; laid out as core/attention.h has it.
  uint16_t* keys(int64_t layer, int64_t kv_head) const {
    return keys_.data() + (layer * kv_heads_ + kv_head) * (keys_.size() / (layers_ * kv_heads_));
  }
  uint16_t* values(int64_t layer, int64_t kv_head) const {
    return values_.data() + (layer * kv_heads_ + kv_head) * (values_.size() / (layers_ * kv_heads_));
  }

  int64_t layers_ = 0, kv_heads_ = 0, head_dim_ = 0, capacity_ = 0, size_ = 0;
  AlignedBuffer<uint16_t> keys_, values_;  // [layer][kv_head][blocks of 16 positions, or positions]
};

}  // namespace octalane
