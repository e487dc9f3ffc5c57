#include "model/kv_cache.h"

#include <new>

#include "core/attention.h"

namespace octalane {

Expected<KvCache> KvCache::create(const ModelConfig& config, int64_t capacity) {
  if (capacity < 1) return fail("KV cache: wanted room for at least 1 position, got {}", capacity);
  const double bytes = 2.0 * sizeof(uint16_t) * static_cast<double>(config.layers) *
                       static_cast<double>(config.kv_heads) * static_cast<double>(config.head_dim) *
                       static_cast<double>(capacity);
  const auto too_large = [&] {
    return fail("KV cache: {} positions take {:.0f} MiB, more than there is", capacity, bytes / (1 << 20));
  };
  if (bytes > 0x1p46) return too_large();  // beyond any address space
  KvCache cache;
  cache.layers_ = config.layers;
  cache.kv_heads_ = config.kv_heads;
  cache.head_dim_ = config.head_dim;
  cache.capacity_ = capacity;
  try {
    const int64_t heads = config.layers * config.kv_heads;
    const int64_t blocks = (capacity + kKeyBlock - 1) / kKeyBlock;
    cache.keys_ = AlignedBuffer<uint16_t>(heads * blocks * kKeyBlock * config.head_dim);
    cache.values_ = AlignedBuffer<uint16_t>(heads * capacity * value_stride(config.head_dim));
  } catch (const std::bad_alloc&) {
    return too_large();
  }
  return cache;
}

}  // namespace octalane
