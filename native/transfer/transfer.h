// Transfer: a submitted batch, on its way.
//
// Thread safety: all methods may be called by any thread.
// Ownership: shared by the caller and the thread that carries it out.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>

#include "base/deadline.h"
#include "base/fd.h"
#include "base/status.h"

namespace mooncake {

class Transfer : public std::enable_shared_from_this<Transfer> {
 public:
  bool done() const;

  // Blocks until the batch has ended or `deadline` passes. The batch's own status, or nothing when
  // it is still under way: waiting in vain changes nothing about it.
  std::optional<Status> Wait(Deadline deadline) const;

  // An eventfd that is readable once the batch has ended; made on the first call, owned by this.
  Result<int> EventFd();

  // Ends the batch, once. Called by the engine.
  void Complete(Status status);

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable ended_;
  std::optional<Status> status_;
  Fd event_;
};

}  // namespace mooncake
