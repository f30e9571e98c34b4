// Relay: a TCP relay in this process whose connections can be stalled or cut.
//
// Thread safety: Stall, Resume and Cut by any thread.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <atomic>
#include <chrono>
#include <list>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/socket.h"

namespace mooncake::test {

class Relay {
 public:
  // Listens on `host`, and passes everything on to `target`.
  Relay(const std::string& host, Address target)
      : target_(std::move(target)), listener_(ListenTcp({host, 0}).value()) {
    address_ = LocalAddress(listener_).value();
    accepting_ = std::thread([this] { Accept(); });
  }
  ~Relay() {
    is_ending_ = true;
    Resume();
    accepting_.join();
    Cut();
    for (std::thread& thread : threads_) thread.join();
  }

  const Address& address() const { return address_; }
  // Nothing passes until Resume, and nobody hears of it.
  void Stall() { is_stalled_ = true; }
  void Resume() { is_stalled_ = false; }
  // Ends all connections.
  void Cut() {
    const std::lock_guard lock(mutex_);
    for (const Fd& socket : sockets_) shutdown(socket.get(), SHUT_RDWR);
  }

 private:
  static Patience Long() { return Deadline::After(60); }

  void Accept() {
    while (!is_ending_) {
      if (!WaitFor(listener_, POLLIN, Deadline::After(0.02)).ok()) continue;
      Fd from(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      auto to = ConnectTcp(target_, Long());
      if (!from.valid() || !to.ok()) continue;
      const std::lock_guard lock(mutex_);
      const Fd& near = sockets_.emplace_back(std::move(from));
      const Fd& far = sockets_.emplace_back(std::move(to).value());
      threads_.emplace_back([&] { Pass(near, far); });
      threads_.emplace_back([&] { Pass(far, near); });
    }
  }

  void Pass(const Fd& from, const Fd& to) {
    std::vector<char> buffer(64 << 10);
    while (WaitFor(from, POLLIN, Long()).ok()) {
      const ssize_t count = recv(from.get(), buffer.data(), buffer.size(), 0);
      while (is_stalled_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
      if (count <= 0) break;
      if (!SendAll(to, buffer.data(), static_cast<size_t>(count), Long()).ok()) break;
    }
    shutdown(from.get(), SHUT_RDWR);
    shutdown(to.get(), SHUT_RDWR);
  }

  const Address target_;
  const Fd listener_;
  Address address_;
  std::atomic<bool> is_ending_ = false;
  std::atomic<bool> is_stalled_ = false;
  std::mutex mutex_;
  std::list<Fd> sockets_;
  std::list<std::thread> threads_;
  std::thread accepting_;
};

}  // namespace mooncake::test
