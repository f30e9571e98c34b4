#include "transfer/transfer.h"

#include <sys/eventfd.h>

#include "base/check.h"
#include "base/socket.h"
#include "transfer/io_pool.h"

namespace mooncake {
namespace {

void Signal(const Fd& event) {
  const uint64_t one = 1;
  const ssize_t written = write(event.get(), &one, sizeof one);
  MC_CHECK(written == sizeof one, "eventfd took %zd bytes", written);
}

}  // namespace

bool Transfer::done() const {
  const std::lock_guard lock(mutex_);
  return status_.has_value();
}

std::optional<Status> Transfer::Wait(Deadline deadline) const {
  std::unique_lock lock(mutex_);
  ended_.wait_until(lock, deadline.time(), [&] { return status_.has_value(); });
  return status_;
}

Result<int> Transfer::EventFd() {
  const std::lock_guard lock(mutex_);
  if (!event_.valid()) {
    event_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!event_.valid()) return SystemError("eventfd");
    if (status_) Signal(event_);
  }
  return event_.get();
}

void Transfer::Cancel() {
  cancel_.Set();
  {
    const std::lock_guard lock(mutex_);
    if (shared_cancel_ != nullptr) shared_cancel_->Set();
  }
  if (const auto queue = queue_.lock()) queue->Withdraw(*this);
}

void Transfer::Follow(std::shared_ptr<CancelFlag> shared) {
  const std::lock_guard lock(mutex_);
  if (cancel_.is_set()) shared->Set();
  shared_cancel_ = std::move(shared);
}

void Transfer::Complete(Status status) {
  const std::lock_guard lock(mutex_);
  MC_CHECK(!status_, "a transfer ended twice");
  status_ = std::move(status);
  if (event_.valid()) Signal(event_);
  ended_.notify_all();
}

}  // namespace mooncake
