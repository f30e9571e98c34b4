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
#include "transfer/types.h"

namespace mooncake {

class IoPool;

class Transfer : public std::enable_shared_from_this<Transfer> {
 public:
  // `queue` is where it waits for its turn; null: it does not wait.
  explicit Transfer(std::weak_ptr<IoPool> queue = {}) : queue_(std::move(queue)) {}

  bool done() const;

  // Blocks until the batch has ended or `deadline` passes. The batch's own status, or nothing when
  // it is still under way: waiting in vain changes nothing about it.
  std::optional<Status> Wait(Deadline deadline) const;

  // An eventfd that is readable once the batch has ended; made on the first call, owned by this.
  Result<int> EventFd();

  // Asks the batch to end: within some 10 ms, with kCancelled, unless it has ended otherwise by
  // then. One that waits for its turn ends here, and nothing of it moves.
  void Cancel();

  // For those who carry it out.
  bool is_cancelled() const { return cancel_.is_set(); }
  const CancelFlag& cancel_flag() const { return cancel_; }
  // From now on Cancel sets `shared` too, of a batch that is carried out together with others.
  void Follow(std::shared_ptr<CancelFlag> shared);
  // Ends the batch, once.
  void Complete(Status status);

 private:
  mutable std::mutex mutex_;
  mutable std::condition_variable ended_;
  std::optional<Status> status_;
  Fd event_;
  CancelFlag cancel_;
  std::shared_ptr<CancelFlag> shared_cancel_;  // null: it is carried out alone
  const std::weak_ptr<IoPool> queue_;
};

}  // namespace mooncake
