// NotificationQueue: what peers have said after their batches, until this process reads it.
//
// Thread safety: all methods may be called by any thread.
// Invariants: at most kCapacity entries; its descriptor is readable iff there are any, or it is
// closed.
#pragma once

#include <cstdint>
#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace mooncake {

inline constexpr size_t kNotificationBytes = 4096;  // the longest

struct Notification {
  uint64_t peer_id = 0;  // of the sender, as it was then
  std::string data = {};
};

class NotificationQueue {
 public:
  static constexpr size_t kCapacity = 4096;

  // kNotNotified when it is full, or closed.
  Status Push(Notification notification);
  // The oldest, at most `limit`; none when there are none. kClosed once it is closed and empty.
  Result<std::vector<Notification>> Take(size_t limit);
  // Made on the first call, owned by this.
  Result<int> EventFd();
  void Close();

 private:
  void Signal();

  std::mutex mutex_;
  std::deque<Notification> queue_;
  bool is_closed_ = false;
  Fd event_;
};

}  // namespace mooncake
