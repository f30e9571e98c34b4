// SegmentTable: the segments of this engine that peers may reach, by id.
//
// Thread safety: all methods may be called by any thread.
#pragma once

#include <memory>
#include <mutex>
#include <unordered_map>

#include "transfer/segment.h"

namespace mooncake {

class SegmentTable {
 public:
  void Add(std::shared_ptr<Segment> segment) {
    const std::lock_guard lock(mutex_);
    segments_.emplace(segment->id(), segment);
  }

  // Null when there is none.
  std::shared_ptr<Segment> Find(uint64_t id) const {
    const std::lock_guard lock(mutex_);
    const auto found = segments_.find(id);
    return found == segments_.end() ? nullptr : found->second;
  }

  // False when it was not there.
  bool Remove(uint64_t id) {
    std::shared_ptr<Segment> removed = Find(id);  // freed after the lock
    const std::lock_guard lock(mutex_);
    return segments_.erase(id) > 0;
  }

  void Clear() {
    std::unordered_map<uint64_t, std::shared_ptr<Segment>> removed;
    const std::lock_guard lock(mutex_);
    removed.swap(segments_);
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<Segment>> segments_;
};

}  // namespace mooncake
