#include "policy/replay.h"

#include <algorithm>
#include <unordered_map>
#include <vector>

#include "base/check.h"

namespace mooncake {

uint64_t ReplayTrace(std::span<const uint64_t> keys, uint32_t capacity_blocks, Eviction& eviction) {
  MC_CHECK(capacity_blocks > 0 && eviction.count() == 0, "capacity %u", capacity_blocks);
  std::unordered_map<uint64_t, uint32_t> id_of_key;
  std::vector<uint64_t> key_of_id;
  id_of_key.reserve(std::min<size_t>(capacity_blocks, keys.size()));
  uint64_t hits = 0;
  for (const uint64_t key : keys) {
    if (const auto found = id_of_key.find(key); found != id_of_key.end()) {
      ++hits;
      eviction.Touch(found->second);
      continue;
    }
    auto id = static_cast<uint32_t>(key_of_id.size());
    if (id == capacity_blocks) {
      id = eviction.Victim();
      eviction.Remove(id);
      id_of_key.erase(key_of_id[id]);
      key_of_id[id] = key;
    } else {
      key_of_id.push_back(key);
    }
    id_of_key.emplace(key, id);
    eviction.Insert(id, EvictionClass::kLeaf);
  }
  return hits;
}

}  // namespace mooncake
