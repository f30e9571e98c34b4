// Listener: accepts connections, also when descriptors have run out.
//
// Thread safety: one thread at a time.
#pragma once

#include <fcntl.h>
#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "base/fd.h"

namespace mooncake {

class Listener {
 public:
  explicit Listener(Fd socket) : socket_(std::move(socket)), spare_(OpenSpare()) {}

  const Fd& socket() const { return socket_; }
  // Nobody is let in any more, though a forked child may hold the descriptor too.
  void Close() {
    if (socket_.valid()) shutdown(socket_.get(), SHUT_RDWR);
    socket_.Reset();
  }

  // The next connection, non-blocking, or an invalid Fd when there is none.
  Fd Accept() {
    Fd accepted(accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!accepted.valid() && (errno == EMFILE || errno == ENFILE)) Shed();
    return accepted;
  }

 private:
  static Fd OpenSpare() { return Fd(open("/dev/null", O_RDONLY | O_CLOEXEC)); }

  // Refuses one caller. Else it would wait for nothing, and a level-triggered loop would spin.
  void Shed() {
    spare_.Reset();
    Fd(accept4(socket_.get(), nullptr, nullptr, SOCK_CLOEXEC)).Reset();
    spare_ = OpenSpare();
  }

  Fd socket_;
  Fd spare_;
};

}  // namespace mooncake
