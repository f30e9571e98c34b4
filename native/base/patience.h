// Patience: how long something that blocks may take, and what ends it early.
#pragma once

#include <algorithm>
#include <atomic>

#include "base/deadline.h"
#include "base/status.h"

namespace mooncake {

// Asks whoever waits to give up. They do within some 10 ms, with kCancelled.
//
// Thread safety: all methods may be called by any thread.
class CancelFlag {
 public:
  void Set() { is_set_.store(true, std::memory_order_relaxed); }
  bool is_set() const { return is_set_.load(std::memory_order_relaxed); }

 private:
  std::atomic<bool> is_set_ = false;
};

// Thread safety: a value. The flag is the caller's.
struct Patience {
  Patience(Deadline deadline, const CancelFlag* cancel = nullptr)  // NOLINT: implicit by design
      : deadline(deadline), cancel(cancel) {}

  // kCancelled or kTimeout once it is at its end.
  Status Check(const char* what) const {
    if (cancel != nullptr && cancel->is_set()) {
      return Status(Code::kCancelled, std::string(what) + " was cancelled");
    }
    if (deadline.passed()) return Status(Code::kTimeout, std::string(what) + " timed out");
    return Status::Ok();
  }
  // What poll() takes.
  int PollMillis() const {
    const int left = deadline.PollMillis();
    return cancel == nullptr ? left : std::min(left, 10);
  }

  Deadline deadline;
  const CancelFlag* cancel;
};

}  // namespace mooncake
