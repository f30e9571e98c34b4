#include "transfer/copy_team.h"

#include <pthread.h>
#include <sched.h>

#include <atomic>
#include <utility>

#include "base/deadline.h"

namespace mooncake {
namespace {

constexpr double kSpin_s = 50e-6;  // a few steps

// A thread that wakes up may take the core of one that runs, as the caller who has woken it; batch
// threads wait for a core that is free.
void YieldToOthers() {
  const sched_param none{};
  (void)pthread_setschedparam(pthread_self(), SCHED_BATCH, &none);
}

}  // namespace

struct CopyTeam::Job {
  const Step& step;
  const size_t count;
  std::atomic<size_t> next = 0;
  std::atomic<int> helpers = 0;  // changed with the mutex held
  Status status = {};            // the first failure; guarded by the mutex
};

CopyTeam::CopyTeam(int helpers) : helpers_(helpers) {
  for (int i = 0; i < helpers; ++i) threads_.emplace_back([this] { Main(); });
}

Status CopyTeam::Run(size_t count, const Step& step) {
  Job job{step, count};
  Offer(job);
  Work(job);
  Withdraw(job);
  Await(job);
  return std::move(job.status);
}

void CopyTeam::Offer(Job& job) {
  const std::lock_guard lock(mutex_);
  if (++working_ > helpers_ || job.count < 2) return;
  offers_.push_back(&job);
  offered_.notify_one();
}

// No helper begins with it any more.
void CopyTeam::Withdraw(Job& job) {
  const std::lock_guard lock(mutex_);
  --working_;
  offers_.remove(&job);
}

// Waits until helpers have ended the steps that they are at: not long, if they have their cores.
// To yield this one would take longer, where others wait for it.
void CopyTeam::Await(Job& job) {
  if (job.helpers > 0) {
    const Deadline deadline = Deadline::After(kSpin_s);
    while (job.helpers > 0 && !deadline.passed()) continue;
  }
  std::unique_lock lock(mutex_);
  left_.wait(lock, [&] { return job.helpers == 0; });
}

// Takes steps until there are none left.
void CopyTeam::Work(Job& job) {
  for (size_t at = job.next++; at < job.count; at = job.next++) {
    Status status = job.step(at);
    if (status.ok()) continue;
    job.next = job.count;
    const std::lock_guard lock(mutex_);
    if (job.status.ok()) job.status = std::move(status);
  }
}

void CopyTeam::Main() {
  YieldToOthers();
  std::unique_lock lock(mutex_);
  for (;;) {
    offered_.wait(lock, [&] { return is_stopping_ || !offers_.empty(); });
    if (is_stopping_) return;
    Job& job = *offers_.front();
    offers_.splice(offers_.end(), offers_, offers_.begin());
    ++job.helpers;
    if (++working_ <= helpers_) offered_.notify_one();
    lock.unlock();
    Work(job);
    lock.lock();
    --working_;
    offers_.remove(&job);
    if (--job.helpers == 0) left_.notify_all();
  }
}

void CopyTeam::Stop() {
  std::vector<std::thread> threads;
  {
    const std::lock_guard lock(mutex_);
    is_stopping_ = true;
    threads.swap(threads_);
  }
  offered_.notify_all();
  for (std::thread& thread : threads) thread.join();
}

}  // namespace mooncake
