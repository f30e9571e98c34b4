// Deadline: a point on the monotonic clock, for shells. Cores are told the time instead.
//
// Thread safety: a value.
#pragma once

#include <algorithm>
#include <chrono>

namespace mooncake {

// Seconds on the machine's monotonic clock, the same one as Python's time.monotonic().
inline double MonotonicSeconds() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Deadline {
 public:
  using Clock = std::chrono::steady_clock;

  // `seconds` from now; negative or NaN means now, and no wait is longer than ten years.
  static Deadline After(double seconds) {
    constexpr double kLongest = 10 * 365.0 * 86400;
    const double bounded = seconds > 0 ? std::min(seconds, kLongest) : 0;
    return Deadline(Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                       std::chrono::duration<double>(bounded)));
  }

  Clock::time_point time() const { return time_; }
  bool passed() const { return Clock::now() >= time_; }
  double seconds_left() const {
    return std::max(0.0, std::chrono::duration<double>(time_ - Clock::now()).count());
  }

  // What poll() and epoll_wait() take: rounded up, so that a wait never ends just before the
  // deadline, and at most a minute, so callers loop.
  int PollMillis() const {
    const double left = seconds_left();
    return left <= 0 ? 0 : static_cast<int>(std::min(left, 60.0) * 1000) + 1;
  }

 private:
  explicit Deadline(Clock::time_point time) : time_(time) {}
  Clock::time_point time_;
};

}  // namespace mooncake
