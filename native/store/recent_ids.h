// RecentIds: the ids that came last, so many at most: a new one takes the place of the oldest.
//
// Thread safety: none; one owner.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <unordered_set>

namespace mooncake::store {

class RecentIds {
 public:
  // REQUIRES: most > 0.
  explicit RecentIds(size_t most) : most_(most) {}

  // One that is known keeps its place.
  void Add(uint64_t id) {
    if (!known_.insert(id).second) return;
    by_arrival_.push_back(id);
    if (by_arrival_.size() <= most_) return;
    known_.erase(by_arrival_.front());
    by_arrival_.pop_front();
  }
  bool Contains(uint64_t id) const { return !known_.empty() && known_.contains(id); }

 private:
  size_t most_;
  std::unordered_set<uint64_t> known_;
  std::deque<uint64_t> by_arrival_;
};

}  // namespace mooncake::store
