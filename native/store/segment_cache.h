// SegmentCache: the remote segments that this process has opened, each once. A segment that could
// not be reached is remembered for a moment, so that one dead node does not slow every call.
//
// Thread safety: all methods may be called by any thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <utility>

#include "store/messages.h"
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
  bool IsDead(NodeId node);

  const std::shared_ptr<Engine> engine_;
  std::mutex mutex_;
  std::map<Key, std::shared_ptr<Entry>> entries_;
  std::map<NodeId, double> dead_until_s_;
};

}  // namespace mooncake::store
