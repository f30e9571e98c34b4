// Context: what a client's readers and writers share.
//
// Thread safety: all of it may be used by any thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "store/layout.h"
#include "store/scratch.h"
#include "store/segment_cache.h"
#include "store/session.h"

namespace mooncake::store {

struct ReadCounters {
  std::atomic<uint64_t> corrupt{0}, stale{0}, unreachable{0};
};

struct Context {
  Context(const std::shared_ptr<Engine>& engine, const std::string& master, double timeout_s,
          bool checksums)
      : session(engine, master, timeout_s),
        segments(engine),
        scratch(*engine),
        has_checksums(checksums) {}

  // How long moving `bytes` may take: a slow network still makes this many a second.
  Deadline DataDeadline(uint64_t bytes) const {
    constexpr double kSlow_bytes_per_s = 10e6;
    return Deadline::After(session.timeout_s() + static_cast<double>(bytes) / kSlow_bytes_per_s);
  }

  Session session;
  SegmentCache segments;
  ScratchPool scratch;
  const bool has_checksums;        // computes and verifies them
  std::atomic<uint32_t> turns{0};  // of copies that are as good as each other
  ReadCounters counters;
};

// True when a batch was refused before anything moved: the caller's arguments are wrong.
inline bool IsCallersFault(const Status& status) {
  return status.code() == Code::kInvalidArgument || status.code() == Code::kBufferNotRegistered;
}

}  // namespace mooncake::store
