// SegmentCache: the remote segments that this process has opened, each once. A node that could
// not be reached is left alone for a while, so that it does not slow every call.
//
// Thread safety: all methods may be called by any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "store/messages.h"
#include "store/node_health.h"
#include "transfer/engine.h"

namespace mooncake::store {

class SegmentCache {
 public:
  explicit SegmentCache(std::shared_ptr<Engine> engine) : engine_(std::move(engine)) {}

  // The segment of `node`, opened under `peer_id`. kFenced when that is not the engine's current
  // id: what was granted to one id must never be written under another.
  Result<std::shared_ptr<RemoteSegment>> Open(const NodeAddress& node, uint64_t peer_id,
                                              Deadline deadline);
  // Whether its memory is shared with this process; before it was opened, whether that is likely.
  bool IsNear(const NodeAddress& node);

  // An operation on it failed: the next one opens it anew; in a moment, unless it was this process
  // that was refused.
  void Drop(NodeId node, const Status& why);
  // One has moved bytes: it is no longer left alone.
  void Praise(NodeId node);
  // All that was opened is of an earlier epoch.
  void Clear();

 private:
  struct Entry {
    std::mutex opening;
    std::shared_ptr<RemoteSegment> segment;  // set under both mutexes; null: not opened yet
  };
  using Key = std::pair<NodeId, uint64_t>;  // segment, peer id

  std::shared_ptr<Entry> EntryOf(const Key& key);
  std::shared_ptr<RemoteSegment> Find(const Key& key);
  double PatienceFor(NodeId node);

  const std::shared_ptr<Engine> engine_;
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<Entry>> entries_;
  NodeHealth health_;
  std::atomic<bool> has_failed_{false};  // some node, lately
};

}  // namespace mooncake::store
