// IoPool: threads that carry out submitted batches, first come, first served.
//
// Thread safety: all methods may be called by any thread but its own.
#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"

namespace mooncake {

class IoPool {
 public:
  explicit IoPool(int threads);
  ~IoPool();

  // Has `job` run, with Ok, or with kClosed if the pool stops before its turn. Blocks while the
  // queue is full; kTimeout or kClosed: the job was not taken.
  Status Submit(std::function<void(Status)> job, Deadline deadline);

  // Ends the threads; each finishes its job first.
  void Stop();

 private:
  static constexpr size_t kQueue = 1024;

  void Main();

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void(Status)>> jobs_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mooncake
