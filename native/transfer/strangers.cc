#include "transfer/strangers.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <algorithm>

#include "base/check.h"
#include "base/socket.h"

namespace mooncake {

Result<std::shared_ptr<Strangers>> Strangers::Create(double patience_s) {
  Fd timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  if (!timer.valid()) return SystemError("timerfd_create");
  return std::shared_ptr<Strangers>(new Strangers(std::move(timer), patience_s));
}

void Strangers::Start(Loop& loop) { loop.Watch(timer_, EPOLLIN, shared_from_this()); }

void Strangers::Add(std::function<void()> drop) {
  if (waiting_.size() >= kMax) DropFirst();
  waiting_.push_back({Deadline::After(patience_s_), std::move(drop)});
  if (waiting_.size() == 1) Arm();
}

void Strangers::OnReady(uint64_t, uint32_t) {
  uint64_t ignored;
  if (read(timer_.get(), &ignored, sizeof ignored) < 0) return;
  while (!waiting_.empty() && waiting_.front().until.passed()) DropFirst();
  if (!waiting_.empty()) Arm();
}

void Strangers::DropFirst() {
  const auto drop = std::move(waiting_.front().drop);
  waiting_.pop_front();
  drop();
}

// Wakes the loop when the first has waited long enough.
void Strangers::Arm() {
  const double left_s = std::max(waiting_.front().until.seconds_left(), 1e-3);
  itimerspec spec{};
  spec.it_value.tv_sec = static_cast<time_t>(left_s);
  spec.it_value.tv_nsec =
      static_cast<long>((left_s - static_cast<double>(spec.it_value.tv_sec)) * 1e9);
  const int result = timerfd_settime(timer_.get(), 0, &spec, nullptr);
  MC_CHECK(result == 0, "timerfd_settime: errno %d", errno);
}

}  // namespace mooncake
