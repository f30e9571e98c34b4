#include "transfer/loop.h"

#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <array>
#include <future>

#include "base/check.h"
#include "base/socket.h"

namespace mooncake {
namespace {

constexpr uint64_t kWakeToken = 0;

}  // namespace

Result<std::shared_ptr<Loop>> Loop::Create() {
  Fd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return SystemError("epoll_create1");
  Fd wake(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return SystemError("eventfd");
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.u64 = kWakeToken;
  if (epoll_ctl(epoll.get(), EPOLL_CTL_ADD, wake.get(), &event) != 0) return SystemError("epoll");
  return std::shared_ptr<Loop>(new Loop(std::move(epoll), std::move(wake)));
}

Loop::Loop(Fd epoll, Fd wake) : epoll_(std::move(epoll)), wake_(std::move(wake)) {
  thread_ = std::thread([this] { Main(); });
}

Loop::~Loop() { Stop(); }

uint64_t Loop::Watch(const Fd& fd, uint32_t events, std::shared_ptr<Watcher> watcher) {
  const uint64_t token = ++last_token_;
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  const int result = epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd.get(), &event);
  MC_CHECK(result == 0, "epoll add of %d: errno %d", fd.get(), errno);
  watches_.emplace(token, Entry{fd.get(), std::move(watcher)});
  return token;
}

void Loop::Change(uint64_t token, uint32_t events) {
  const auto found = watches_.find(token);
  MC_CHECK(found != watches_.end(), "token %llu", static_cast<unsigned long long>(token));
  epoll_event event{};
  event.events = events;
  event.data.u64 = token;
  const int result = epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, found->second.fd, &event);
  MC_CHECK(result == 0, "epoll change of %d: errno %d", found->second.fd, errno);
}

void Loop::Forget(uint64_t token) {
  const auto found = watches_.find(token);
  if (found == watches_.end()) return;
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, found->second.fd, nullptr);
  watches_.erase(found);
}

bool Loop::Post(std::function<void()> task) {
  const std::lock_guard lock(mutex_);
  if (finished_) return false;
  tasks_.push_back(std::move(task));
  eventfd_write(wake_.get(), 1);
  return true;
}

bool Loop::Run(const std::function<void()>& task) {
  if (thread_id_ == std::this_thread::get_id()) {
    task();
    return true;
  }
  const auto done = std::make_shared<std::promise<void>>();
  std::future<void> wait = done->get_future();
  if (!Post([&task, done] {
        task();
        done->set_value();
      })) {
    return false;
  }
  wait.wait();
  return true;
}

void Loop::Stop() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    eventfd_write(wake_.get(), 1);
  }
  const std::lock_guard lock(join_mutex_);
  if (thread_.joinable()) thread_.join();
  watches_.clear();
}

void Loop::Main() {
  thread_id_ = std::this_thread::get_id();
  std::array<epoll_event, 64> events;
  while (RunTasks()) {
    const int count = epoll_wait(epoll_.get(), events.data(), events.size(), -1);
    MC_CHECK(count >= 0 || errno == EINTR, "epoll_wait: errno %d", errno);
    for (int i = 0; i < count; ++i) Dispatch(events[i].data.u64, events[i].events);
  }
  thread_id_ = std::thread::id();  // a later thread may get the same one
}

void Loop::Dispatch(uint64_t token, uint32_t events) {
  if (token == kWakeToken) {
    eventfd_t ignored;
    eventfd_read(wake_.get(), &ignored);
    return;
  }
  const auto found = watches_.find(token);
  if (found == watches_.end()) return;  // forgotten since epoll_wait
  const std::shared_ptr<Watcher> watcher = found->second.watcher;
  watcher->OnReady(token, events);
}

// False when the loop is to end.
bool Loop::RunTasks() {
  for (;;) {
    std::vector<std::function<void()>> tasks;
    {
      const std::lock_guard lock(mutex_);
      if (tasks_.empty()) {
        finished_ = stopping_;
        return !finished_;
      }
      tasks.swap(tasks_);
    }
    for (auto& task : tasks) task();
  }
}

}  // namespace mooncake
