// Context: what a client's readers and writers share.
//
// Thread safety: all of it may be used by any thread.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>

#include "store/layout.h"
#include "store/segment_cache.h"
#include "store/session.h"

namespace mooncake::store {

struct ReadCounters {
  std::atomic<uint64_t> corrupt{0}, stale{0}, unreachable{0};
};

struct Context {
  Context(const std::shared_ptr<Engine>& engine, const std::string& master, double timeout_s)
      : session(engine, master, timeout_s), segments(engine) {}

  // How long moving `bytes` may take: a slow network still makes this many a second.
  Deadline DataDeadline(uint64_t bytes) const {
    constexpr double kSlow_bytes_per_s = 10e6;
    return Deadline::After(session.timeout_s() + static_cast<double>(bytes) / kSlow_bytes_per_s);
  }

  Session session;
  SegmentCache segments;
  ReadCounters counters;
};

// True when a batch was refused before anything moved: the caller's arguments are wrong.
inline bool IsCallersFault(const Status& status) {
  return status.code() == Code::kInvalidArgument || status.code() == Code::kBufferNotRegistered;
}

inline uint64_t TotalLength(std::span<const Range> memory) {
  uint64_t total = 0;
  for (const Range& range : memory) total += range.length;
  return total;
}

// The pieces that lay `memory`, in order, over remote bytes from `offset` on.
inline void AppendPieces(std::span<const Range> memory, uint64_t offset,
                         std::vector<Piece>& pieces) {
  for (const Range& range : memory) {
    if (range.length > 0) pieces.push_back({range.address, offset, range.length});
    offset += range.length;
  }
}

}  // namespace mooncake::store
