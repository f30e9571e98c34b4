// How a call with many keys is cut into messages.
//
// Thread safety: pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "store/messages.h"

namespace mooncake::store {

inline constexpr uint64_t kMessageKeyBytes = 1 << 20;

// How many of `items`, at least one, go into the next message: up to kMaxBatch whose keys have
// together up to kMessageKeyBytes, and whose `cost` is together up to `most`.
template <typename T, typename KeyBytes, typename Cost>
size_t NextBatch(std::span<const T> items, KeyBytes key_bytes, Cost cost, uint64_t most) {
  uint64_t keys = 0, costs = 0;
  size_t count = 0;
  for (; count < items.size() && count < kMaxBatch; ++count) {
    keys += key_bytes(items[count]);
    costs += cost(items[count]);
    if (count > 0 && (keys > kMessageKeyBytes || costs > most)) break;
  }
  return count;
}

template <typename Key>
size_t NextBatch(std::span<const Key> keys) {
  const auto key_bytes = [](const Key& key) -> uint64_t { return key.size(); };
  return NextBatch(keys, key_bytes, [](const Key&) { return uint64_t{0}; }, 0);
}

}  // namespace mooncake::store
