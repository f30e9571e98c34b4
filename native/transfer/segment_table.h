// SegmentTable: the segments of this engine that peers may reach, by id and by name.
//
// Thread safety: all methods may be called by any thread.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/status.h"
#include "transfer/segment.h"

namespace mooncake {

class SegmentTable {
 public:
  // kAlreadyExists when a segment of that name is here.
  Status Add(std::shared_ptr<Segment> segment) {
    const std::lock_guard lock(mutex_);
    const std::string& name = segment->name();
    if (!name.empty() && !names_.emplace(name, segment->id()).second) {
      return Status(Code::kAlreadyExists, "a segment named \"" + name + "\" exists already");
    }
    segments_.emplace(segment->id(), segment);
    return Status::Ok();
  }

  // Null when there is none.
  std::shared_ptr<Segment> Find(uint64_t id) const {
    const std::lock_guard lock(mutex_);
    const auto found = segments_.find(id);
    return found == segments_.end() ? nullptr : found->second;
  }
  std::shared_ptr<Segment> FindByName(const std::string& name) const {
    const std::lock_guard lock(mutex_);
    const auto found = names_.find(name);
    return found == names_.end() ? nullptr : segments_.at(found->second);
  }

  // False when it was not there.
  bool Remove(uint64_t id) {
    std::shared_ptr<Segment> removed = Find(id);  // freed after the lock
    const std::lock_guard lock(mutex_);
    if (segments_.erase(id) == 0) return false;
    names_.erase(removed->name());
    return true;
  }

  std::vector<std::shared_ptr<Segment>> All() const {
    std::vector<std::shared_ptr<Segment>> all;
    const std::lock_guard lock(mutex_);
    for (const auto& [id, segment] : segments_) all.push_back(segment);
    return all;
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_map<uint64_t, std::shared_ptr<Segment>> segments_;
  std::unordered_map<std::string, uint64_t> names_;
};

}  // namespace mooncake
