#include "transfer/notifications.h"

#include <sys/eventfd.h>

#include <algorithm>
#include <iterator>
#include <utility>

#include "base/check.h"
#include "base/socket.h"

namespace mooncake {

Status NotificationQueue::Push(Notification notification, uint64_t number) {
  const std::lock_guard lock(mutex_);
  if (known_.contains(number)) return Status::Ok();
  if (is_closed_ || queue_.size() >= kCapacity) {
    return Status(Code::kNotNotified, "the peer has " + std::to_string(queue_.size()) +
                                          " notifications that it has not read, and takes no more");
  }
  if (number != 0) Remember(number);
  queue_.push_back(std::move(notification));
  if (queue_.size() == 1) Signal();
  return Status::Ok();
}

Result<std::vector<Notification>> NotificationQueue::Take(size_t limit) {
  const std::lock_guard lock(mutex_);
  if (is_closed_ && queue_.empty()) return Status(Code::kClosed, "the engine is closed");
  const auto end = queue_.begin() + static_cast<ptrdiff_t>(std::min(limit, queue_.size()));
  std::vector<Notification> taken(std::make_move_iterator(queue_.begin()),
                                  std::make_move_iterator(end));
  queue_.erase(queue_.begin(), end);
  if (queue_.empty() && !taken.empty() && !is_closed_ && event_.valid()) {
    uint64_t count;
    const ssize_t got = read(event_.get(), &count, sizeof count);
    MC_CHECK(got == sizeof count, "eventfd gave %zd bytes", got);
  }
  return taken;
}

Result<int> NotificationQueue::EventFd() {
  const std::lock_guard lock(mutex_);
  if (!event_.valid()) {
    event_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event_.valid()) return SystemError("eventfd");
    if (is_closed_ || !queue_.empty()) Signal();
  }
  return event_.get();
}

void NotificationQueue::Close() {
  const std::lock_guard lock(mutex_);
  if (std::exchange(is_closed_, true)) return;
  Signal();
}

// Long enough: who says one again does so at once.
void NotificationQueue::Remember(uint64_t number) {
  known_.insert(number);
  numbers_.push_back(number);
  if (numbers_.size() <= kCapacity) return;
  known_.erase(numbers_.front());
  numbers_.pop_front();
}

void NotificationQueue::Signal() {
  if (!event_.valid()) return;
  const uint64_t one = 1;
  const ssize_t written = write(event_.get(), &one, sizeof one);
  MC_CHECK(written == sizeof one, "eventfd took %zd bytes", written);
}

}  // namespace mooncake
