#include "transfer/io_pool.h"

#include <utility>

namespace mooncake {

IoPool::IoPool(int threads) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Main(); });
}

IoPool::~IoPool() { Stop(); }

Status IoPool::Submit(std::function<void(Status)> job, Deadline deadline) {
  std::unique_lock lock(mutex_);
  const bool has_room = changed_.wait_until(lock, deadline.time(),
                                            [&] { return stopping_ || jobs_.size() < kQueue; });
  if (stopping_) return Status(Code::kClosed, "the engine is closed");
  if (!has_room) return Status(Code::kTimeout, "the queue of submitted batches stayed full");
  jobs_.push_back(std::move(job));
  changed_.notify_all();
  return Status::Ok();
}

void IoPool::Stop() {
  std::deque<std::function<void(Status)>> rest;
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    rest.swap(jobs_);
    threads.swap(threads_);
    changed_.notify_all();
  }
  for (const auto& job : rest) job(Status(Code::kClosed, "the engine was closed"));
  for (std::thread& thread : threads) thread.join();
}

void IoPool::Main() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [&] { return stopping_ || !jobs_.empty(); });
    if (stopping_) return;
    auto job = std::move(jobs_.front());
    jobs_.pop_front();
    changed_.notify_all();
    lock.unlock();
    job(Status::Ok());
    job = nullptr;  // what it holds is let go of without the lock
    lock.lock();
  }
}

}  // namespace mooncake
