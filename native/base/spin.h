// Spin: whether a thread that waits for a peer should look again at once or go to sleep.
//
// Sleeping and being woken costs about 10 us on each side, more than most answers take. So a thread
// that waits looks again for at most 50 us, and lets others run in between. Where there are more
// threads than cores this would only take time from those that are waited for: nobody spins who
// would be one more than the cores, nor for a while after a yield that brought another thread on.
//
// Thread safety: each belongs to one thread; the count of those that wait is the process's.
#pragma once

#include <atomic>

namespace mooncake {

class Spin {
 public:
  static constexpr double kLongest_s = 50e-6;

  Spin() : is_allowed_(Enter()) {}
  ~Spin() { waiting_.fetch_sub(1, std::memory_order_relaxed); }
  Spin(const Spin&) = delete;
  Spin& operator=(const Spin&) = delete;

  // Something came: the time starts anew.
  void Restart() { end_s_ = 0; }
  // Lets others run. True: look again; false: sleep.
  bool Again();

 private:
  static bool Enter();

  static std::atomic<int> waiting_;
  static std::atomic<double> crowded_until_s_;

  const bool is_allowed_;
  double end_s_ = 0;  // 0: not begun
};

}  // namespace mooncake
