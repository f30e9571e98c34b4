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
#include <unordered_set>
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

  // kNotNotified when it is full, or closed. One that was pushed before under the same number,
  // which is random or 0 for none, is Ok and nothing else.
  Status Push(Notification notification, uint64_t number = 0);
  // The oldest, at most `limit`; none when there are none. kClosed once it is closed and empty.
  Result<std::vector<Notification>> Take(size_t limit);
  // Made on the first call, owned by this.
  Result<int> EventFd();
  void Close();

 private:
  void Remember(uint64_t number);
  void Signal();

  std::mutex mutex_;
  std::deque<Notification> queue_;
  std::deque<uint64_t> numbers_;  // of those that came last, the oldest first
  std::unordered_set<uint64_t> known_;
  bool is_closed_ = false;
  Fd event_;
};

}  // namespace mooncake
