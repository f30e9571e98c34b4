#include "store/segment_cache.h"

#include <algorithm>

namespace mooncake::store {
namespace {

constexpr double kDead_s = 1;
constexpr double kOpen_s = 2;

}  // namespace

std::shared_ptr<SegmentCache::Entry> SegmentCache::EntryOf(const Key& key) {
  std::lock_guard lock(mutex_);
  auto& entry = entries_[key];
  if (entry == nullptr) entry = std::make_shared<Entry>();
  return entry;
}

bool SegmentCache::IsDead(NodeId node) {
  std::lock_guard lock(mutex_);
  const auto dead = dead_until_s_.find(node);
  if (dead == dead_until_s_.end()) return false;
  if (MonotonicSeconds() < dead->second) return true;
  dead_until_s_.erase(dead);
  return false;
}

Result<std::shared_ptr<RemoteSegment>> SegmentCache::Open(const ExtentAddress& extent,
                                                          uint64_t peer_id, Deadline deadline) {
  const auto entry = EntryOf({extent.node, peer_id});
  std::lock_guard opening(entry->opening);
  // Asked after the wait for the lock: whoever had it may have found the node dead.
  if (IsDead(extent.node)) {
    return Status(Code::kPeerUnreachable, "the node at " + extent.endpoint + " failed just now");
  }
  // Ids are never used twice, so equal before and after means equal all the while.
  const bool was_current = engine_->peer_id() == peer_id;
  if (was_current && entry->segment != nullptr) return entry->segment;
  const double wait_s = std::min(deadline.seconds_left(), kOpen_s);
  if (was_current) {
    auto opened = engine_->OpenSegment(extent.endpoint, extent.node, Deadline::After(wait_s));
    if (!opened.ok()) {
      Drop(extent.node, opened.status());
      return opened.status();
    }
    if (engine_->peer_id() == peer_id) return entry->segment = std::move(opened).value();
  }
  return Status(Code::kFenced, "this process has taken a new peer id since the grant");
}

void SegmentCache::Drop(NodeId node, const Status& why) {
  std::lock_guard lock(mutex_);
  if (why.code() != Code::kFenced) dead_until_s_[node] = MonotonicSeconds() + kDead_s;
  std::erase_if(entries_, [node](const auto& entry) { return entry.first.first == node; });
}

void SegmentCache::Clear() {
  std::lock_guard lock(mutex_);
  entries_.clear();
  dead_until_s_.clear();
}

}  // namespace mooncake::store
