#include "transfer/io_pool.h"

#include <algorithm>
#include <utility>

namespace mooncake {
namespace {

void EndAll(BatchGroup group, const Status& status) {
  for (SubmittedBatch& batch : group) batch.End(status);
}

Status Cancelled() { return Status(Code::kCancelled, "the batch was cancelled before its turn"); }

Status Closed() { return Status(Code::kClosed, "the engine was closed"); }

}  // namespace

IoPool::IoPool(int threads, Run run)
    : run_(std::move(run)), most_background_(std::max(1, threads - 1)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Main(); });
}

IoPool::~IoPool() { Stop(); }

Status IoPool::Submit(SubmittedBatch batch) {
  const Priority priority = batch.options.priority;
  std::unique_lock lock(mutex_);
  const bool has_room = room_.wait_until(lock, batch.options.deadline.time(), [&] {
    return stopping_ || queue_.size(priority) < kQueue;
  });
  if (stopping_) return Closed();
  if (!has_room) return Status(Code::kTimeout, "the queue of submitted batches stayed full");
  queue_.Push(std::move(batch));
  work_.notify_one();
  return Status::Ok();
}

void IoPool::Withdraw(const Transfer& transfer) {
  BatchGroup removed;
  {
    const std::lock_guard lock(mutex_);
    removed = queue_.Remove(transfer);
    room_.notify_all();
  }
  EndAll(std::move(removed), Cancelled());
}

void IoPool::Stop() {
  BatchGroup rest;
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    rest = queue_.RemoveAll();
    threads.swap(threads_);
    work_.notify_all();
    room_.notify_all();
  }
  EndAll(std::move(rest), Closed());
  for (std::thread& thread : threads) thread.join();
}

// Whoever is cancelled from here on is found by Withdraw; who was before, ends here.
void IoPool::PutBack(BatchGroup rest) {
  BatchGroup cancelled;
  {
    const std::lock_guard lock(mutex_);
    for (auto at = rest.begin(); at != rest.end();) {
      const auto batch = at++;
      if (batch->transfer->is_cancelled()) cancelled.splice(cancelled.end(), rest, batch);
    }
    if (!stopping_) queue_.PutBack(std::move(rest));
    work_.notify_all();
  }
  EndAll(std::move(cancelled), Cancelled());
  EndAll(std::move(rest), Closed());
}

void IoPool::Main() {
  std::unique_lock lock(mutex_);
  for (;;) {
    BatchGroup group;
    work_.wait(lock, [&] {
      if (!stopping_) group = queue_.Take(running_background_ < most_background_);
      return stopping_ || !group.empty();
    });
    if (stopping_) return;
    const int background = group.front().options.priority == Priority::kBackground ? 1 : 0;
    running_background_ += background;
    room_.notify_all();
    lock.unlock();
    BatchGroup rest = run_(std::move(group));
    if (!rest.empty()) PutBack(std::move(rest));
    lock.lock();
    running_background_ -= background;
  }
}

}  // namespace mooncake
