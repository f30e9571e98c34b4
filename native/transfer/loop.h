// Loop: one thread over epoll. Everything that an engine serves happens on it, so what it alone
// touches needs no lock.
//
// Thread safety: Post, Run and Stop by any thread; the others on the loop's own thread.
// Ownership: holds each watcher while its descriptor is watched; never the descriptor.
// Invariants: no watcher is called after it was forgotten.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/fd.h"
#include "base/status.h"

namespace mooncake {

class Watcher {
 public:
  virtual ~Watcher() = default;
  // `events` is what epoll said. Must not block.
  virtual void OnReady(uint64_t token, uint32_t events) = 0;
};

class Loop : public std::enable_shared_from_this<Loop> {
 public:
  static Result<std::shared_ptr<Loop>> Create();
  ~Loop();
  Loop(const Loop&) = delete;
  Loop& operator=(const Loop&) = delete;

  // Watches `fd`, level-triggered, until Forget. Gives the token that names this watch, never 0.
  uint64_t Watch(const Fd& fd, uint32_t events, std::shared_ptr<Watcher> watcher);
  void Change(uint64_t token, uint32_t events);
  // REQUIRES: the descriptor is still open. An unknown token is fine.
  void Forget(uint64_t token);

  // Has `task` done on the loop's thread; Run waits until it is done, and does it at once when
  // called there. False, and the task is not done, once the loop has stopped.
  bool Post(std::function<void()> task);
  bool Run(const std::function<void()>& task);

  // Does what was posted, then ends the thread and lets go of every watcher.
  void Stop();

 private:
  struct Entry {
    int fd;
    std::shared_ptr<Watcher> watcher;
  };

  Loop(Fd epoll, Fd wake);
  void Main();
  void Dispatch(uint64_t token, uint32_t events);
  bool RunTasks();

  const Fd epoll_;
  const Fd wake_;
  std::unordered_map<uint64_t, Entry> watches_;
  uint64_t last_token_ = 0;

  std::mutex mutex_;  // guards tasks_, stopping_ and finished_
  std::vector<std::function<void()>> tasks_;
  bool stopping_ = false;
  bool finished_ = false;
  std::mutex join_mutex_;
  std::thread thread_;
  std::atomic<std::thread::id> thread_id_;
};

}  // namespace mooncake
