#include "store/segment_cache.h"

#include <algorithm>

namespace mooncake::store {

std::shared_ptr<SegmentCache::Entry> SegmentCache::EntryOf(const Key& key) {
  std::lock_guard lock(mutex_);
  auto& entry = entries_[key];
  if (entry != nullptr) return entry;
  // What was opened under an earlier peer id is of no use any more.
  std::erase_if(entries_, [&key](const auto& other) {
    return other.first.first == key.first && other.first != key;
  });
  return entry = std::make_shared<Entry>();
}

double SegmentCache::PatienceFor(NodeId node) {
  std::lock_guard lock(mutex_);
  return health_.PatienceFor(node, MonotonicSeconds());
}

std::shared_ptr<RemoteSegment> SegmentCache::Find(const Key& key) {
  std::lock_guard lock(mutex_);
  const auto found = entries_.find(key);
  return found == entries_.end() ? nullptr : found->second->segment;
}

Result<std::shared_ptr<RemoteSegment>> SegmentCache::Open(const NodeAddress& node, uint64_t peer_id,
                                                          Deadline deadline) {
  const Key key{node.node, peer_id};
  // Ids are never used twice, so equal before and after means equal all the while.
  const bool was_current = engine_->peer_id() == peer_id;
  if (auto segment = was_current ? Find(key) : nullptr) return segment;
  if (was_current) {
    const auto entry = EntryOf(key);
    std::lock_guard opening(entry->opening);
    if (entry->segment != nullptr) return entry->segment;
    // Asked after the wait for the lock: whoever had it may have found that the node fails.
    const double patience_s = PatienceFor(node.node);
    if (patience_s == 0) {
      return Status(Code::kPeerUnreachable, "the node at " + node.endpoint + " failed just now");
    }
    const double wait_s = std::min(deadline.seconds_left(), patience_s);
    auto opened = engine_->OpenSegment(node.endpoint, node.node, Deadline::After(wait_s));
    if (!opened.ok()) {
      Drop(node.node, opened.status());
      return opened.status();
    }
    if (engine_->peer_id() == peer_id) {
      std::lock_guard lock(mutex_);
      return entry->segment = std::move(opened).value();
    }
  }
  return Status(Code::kFenced, "this process has taken a new peer id since the grant");
}

bool SegmentCache::IsNear(const NodeAddress& node) {
  if (const auto segment = Find({node.node, engine_->peer_id()})) {
    return segment->transport() == "shm";
  }
  const auto host = [](const std::string& endpoint) {
    return std::string_view(endpoint).substr(0, endpoint.rfind(':'));
  };
  return host(node.endpoint) == host(engine_->endpoint());
}

void SegmentCache::Drop(NodeId node, const Status& why) {
  std::lock_guard lock(mutex_);
  if (why.code() != Code::kFenced) {
    health_.Fail(node, MonotonicSeconds());
    has_failed_.store(true);
  }
  std::erase_if(entries_, [node](const auto& entry) { return entry.first.first == node; });
}

void SegmentCache::Praise(NodeId node) {
  if (!has_failed_.load()) return;
  std::lock_guard lock(mutex_);
  health_.Work(node);
  has_failed_.store(!health_.is_empty());
}

void SegmentCache::Clear() {
  std::lock_guard lock(mutex_);
  entries_.clear();
  health_.Clear();
  has_failed_.store(false);
}

}  // namespace mooncake::store
