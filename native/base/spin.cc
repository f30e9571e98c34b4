#include "base/spin.h"

#include <sched.h>

#include <thread>

#include "base/deadline.h"

namespace mooncake {
namespace {

constexpr double kLongYield_s = 10e-6;  // one that found nobody to run takes less than 1 us
constexpr double kRests = 20;           // so long yields take a twentieth of the time at most

int Cores() {
  static const int count = [] {
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0) return CPU_COUNT(&set);
    return static_cast<int>(std::thread::hardware_concurrency());
  }();
  return count;
}

}  // namespace

std::atomic<int> Spin::waiting_{0};
std::atomic<double> Spin::crowded_until_s_{0};

bool Spin::Enter() { return waiting_.fetch_add(1, std::memory_order_relaxed) < Cores() - 1; }

bool Spin::Again() {
  if (!is_allowed_) return false;
  const double now_s = MonotonicSeconds();
  if (end_s_ == 0) {
    if (now_s < crowded_until_s_.load(std::memory_order_relaxed)) return false;
    end_s_ = now_s + kLongest_s;
  }
  if (now_s >= end_s_) return false;
  sched_yield();
  const double back_s = MonotonicSeconds();
  const double away_s = back_s - now_s;
  if (away_s > kLongYield_s) {
    crowded_until_s_.store(back_s + kRests * away_s, std::memory_order_relaxed);
    end_s_ = now_s;
  }
  return true;
}

}  // namespace mooncake
