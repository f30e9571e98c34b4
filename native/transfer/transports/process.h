// Process: another process of this user, whose memory the kernel reads and writes for this one.
//
// The kernel names processes by numbers here, and numbers are used again. So the number is tied to
// its process when this is made, by a pidfd and the start time. Immediately before and after every
// call that process lives and has its end of the socket open, so it has not become another program
// either; what was read is known to be its memory.
//
// Thread safety: all methods may be called by any thread.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <cstdint>
#include <memory>
#include <span>

#include "base/fd.h"
#include "base/status.h"
#include "transfer/types.h"

namespace mooncake {

// When a process started, in ticks since boot. kSystem when there is no such process.
Result<uint64_t> StartTime(pid_t pid);

class Process {
 public:
  // The one at the other end of a Unix socket, which has said when it started. kSystem, with the
  // reason, when it is another user's, cannot be named from here, or started at another time.
  // REQUIRES: the socket outlives it.
  static Result<std::shared_ptr<Process>> Behind(const Fd& socket, uint64_t start_time);

  // Moves all bytes of `local` to `remote`, its addresses, or back; `moved` counts them.
  // kPeerUnreachable: it is dead; kNotFound: it has no such memory; kSystem: the kernel forbids it.
  // REQUIRES: both sum to equally many bytes; neither has more than IOV_MAX entries.
  Status Move(Op op, std::span<iovec> local, std::span<iovec> remote, uint64_t& moved) const;

 private:
  Process(pid_t pid, Fd pidfd, const Fd& socket)
      : pid_(pid), pidfd_(std::move(pidfd)), socket_(socket) {}
  Status CheckAlive() const;
  Status Gone() const;

  const pid_t pid_;
  const Fd pidfd_;
  const Fd& socket_;
};

}  // namespace mooncake
