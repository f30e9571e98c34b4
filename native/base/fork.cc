#include "base/fork.h"

#include <pthread.h>
#include <unistd.h>

#include <atomic>

namespace mooncake {
namespace {

std::atomic<uint64_t> forks = 0;

void CountFork() { forks.fetch_add(1, std::memory_order_relaxed); }

}  // namespace

uint64_t ForkCount() {
  static const int registered = pthread_atfork(nullptr, nullptr, &CountFork);
  (void)registered;
  return forks.load(std::memory_order_relaxed);
}

HomeProcess::HomeProcess() : number_(getpid()), fork_count_(ForkCount()) {}

}  // namespace mooncake
