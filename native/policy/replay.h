// Replays a trace of accesses against a cache of so many blocks, all of one class: what a policy's
// hit rate is. Pure.
#pragma once

#include <cstdint>
#include <span>

#include "policy/eviction.h"

namespace mooncake {

// Returns how many accesses found their key. A missed key is put, after the policy's victim went.
// REQUIRES: `eviction` is empty, 0 < capacity_blocks <= Eviction::kMaxId.
uint64_t ReplayTrace(std::span<const uint64_t> keys, uint32_t capacity_blocks, Eviction& eviction);

}  // namespace mooncake
