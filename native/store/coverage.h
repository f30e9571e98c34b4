// Coverage: which bytes of an object have been claimed, each at most once.
//
// Pure. Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <map>
#include <optional>

namespace mooncake::store {

class Coverage {
 public:
  // Claims [begin, end), or says from where on some of it was claimed before.
  std::optional<uint64_t> Claim(uint64_t begin, uint64_t end);
  // Gives [begin, end) back.
  // REQUIRES: it was claimed.
  void Return(uint64_t begin, uint64_t end);
  // The first byte of [0, end) that is not claimed.
  std::optional<uint64_t> FirstGap(uint64_t end) const;

 private:
  std::map<uint64_t, uint64_t> claimed_;  // begin -> end; disjoint, not adjacent
};

}  // namespace mooncake::store
