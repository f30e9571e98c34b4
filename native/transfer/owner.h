// Owner: what an engine that lends memory knows, shared by its servers.
//
// Thread safety: `segments`, `notifications`, Bar, IsBarred and Admit by any thread; all else on
// the loop's thread. `greeting` does not change once the servers have started.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>

#include "base/status.h"
#include "transfer/loop.h"
#include "transfer/notifications.h"
#include "transfer/protocol.h"
#include "transfer/segment_table.h"
#include "transfer/strangers.h"

namespace mooncake {

// What peers are told about a segment.
inline OpenReply Describe(const Segment& segment) {
  return {segment.id(), segment.size_bytes(), segment.is_read_only()};
}

inline Status ReadOnly(uint64_t segment_id) {
  return Status(Code::kReadOnly,
                "segment " + std::to_string(segment_id) + " was lent for reading only");
}

class Owner {
 public:
  std::shared_ptr<Loop> loop;
  std::shared_ptr<Strangers> strangers;
  SegmentTable segments;
  NotificationQueue notifications;
  HelloReply greeting;

  // For ever.
  void Bar(uint64_t peer_id) {
    const std::lock_guard lock(mutex_);
    barred_.insert(peer_id);
  }

  bool IsBarred(uint64_t peer_id) const {
    const std::lock_guard lock(mutex_);
    return barred_.contains(peer_id);
  }

  // kFenced or kWrongPeer when the caller must not come in.
  Status Admit(const Hello& hello) const {
    if (IsBarred(hello.peer_id)) {
      return Status(Code::kFenced, "the owner of this memory has fenced this process");
    }
    if (hello.expected_engine_id != 0 && hello.expected_engine_id != greeting.engine_id) {
      return Status(Code::kWrongPeer, "another engine listens here now");
    }
    return Status::Ok();
  }

  // The segment that is meant, or kNotFound.
  Result<std::shared_ptr<Segment>> Find(const SegmentRef& ref) const {
    auto segment = ref.id != 0 ? segments.Find(ref.id) : segments.FindByName(ref.name);
    if (segment != nullptr) return segment;
    const std::string which =
        ref.id != 0 ? "segment " + std::to_string(ref.id) : "segment named \"" + ref.name + '"';
    return Status(Code::kNotFound, "the owner has no " + which);
  }

 private:
  mutable std::mutex mutex_;
  std::unordered_set<uint64_t> barred_;
};

}  // namespace mooncake
