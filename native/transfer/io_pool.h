// IoPool: threads that carry out submitted batches. batch_queue.h says in which order.
//
// At most all but one of the threads carry out background batches at a time (one where there is
// only one), so that a foreground batch never waits for background ones on all threads.
//
// Thread safety: all methods may be called by any thread but its own.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "transfer/batch_queue.h"

namespace mooncake {

class IoPool {
 public:
  // `run` carries out a group and ends its batches, but for those that it gives back: they are
  // to wait for another turn.
  using Run = std::function<BatchGroup(BatchGroup)>;
  IoPool(int threads, Run run);
  ~IoPool();

  // Has `batch` carried out, or ended with kClosed if the pool stops before its turn. Blocks while
  // the queue of its priority is full; kTimeout or kClosed: the batch was not taken.
  Status Submit(SubmittedBatch batch);

  // Ends the batch of `transfer` with kCancelled if it still waits for its turn.
  void Withdraw(const Transfer& transfer);

  // Ends the threads; each finishes its group first.
  void Stop();

 private:
  static constexpr size_t kQueue = 1024;  // of each priority

  void PutBack(BatchGroup rest);
  void Main();

  const Run run_;
  const int most_background_;
  std::mutex mutex_;
  std::condition_variable work_;
  std::condition_variable room_;
  BatchQueue queue_;
  int running_background_ = 0;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

}  // namespace mooncake
