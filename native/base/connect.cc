// Connecting: many addresses of one host, the best of them soon (RFC 8305).
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/socket.h"

namespace mooncake {
namespace {

constexpr double kAttemptSeconds = 0.25;  // RFC 8305, section 8

// One host, its addresses in order, and the connections that have been begun.
class Attempts {
 public:
  Attempts(const Address& address, std::vector<SocketAddress> targets)
      : name_(address.ToString()), targets_(std::move(targets)) {}

  Result<Fd> Run(Patience patience) {
    for (;;) {
      if (next_ < targets_.size() && (sockets_.empty() || wait_.passed())) Start();
      if (sockets_.empty() && next_ == targets_.size()) return last_;
      if (sockets_.empty()) continue;
      auto ready = Wait(patience);
      if (!ready.ok() || ready.value().valid()) return ready;
    }
  }

 private:
  void Start() {
    auto socket = StartConnect(targets_[next_++]);
    wait_ = Deadline::After(kAttemptSeconds);
    if (socket.ok()) {
      sockets_.push_back(std::move(socket).value());
    } else {
      Failed(socket.status().code(), socket.status().message());
    }
  }

  // One that is connected, or none yet.
  Result<Fd> Wait(Patience patience) {
    std::vector<pollfd> polled;
    for (const Fd& socket : sockets_) polled.push_back({socket.get(), POLLOUT, 0});
    const bool has_more = next_ < targets_.size();
    const int limit = patience.PollMillis();
    poll(polled.data(), polled.size(), has_more ? std::min(limit, wait_.PollMillis()) : limit);
    for (size_t i = polled.size(); i-- > 0;) {
      if (polled[i].revents == 0) continue;
      Fd socket = std::move(sockets_[i]);
      sockets_.erase(sockets_.begin() + static_cast<std::ptrdiff_t>(i));
      const int error = ConnectError(socket);
      if (error == 0) return socket;
      Failed(Code::kPeerUnreachable, std::strerror(error));
    }
    const Status status = patience.Check(("connecting to " + name_).c_str());
    if (!status.ok()) return status;
    return Fd();
  }

  void Failed(Code code, const std::string& why) {
    last_ = Status(code, "connect to " + name_ + ": " + why);
    wait_ = Deadline::After(0);
  }

  const std::string name_;
  const std::vector<SocketAddress> targets_;
  size_t next_ = 0;
  std::vector<Fd> sockets_;
  Deadline wait_ = Deadline::After(0);  // before the next is begun
  Status last_{Code::kPeerUnreachable, name_ + ": no address"};
};

// The first family's first, then the other's first, and so on.
std::vector<SocketAddress> Alternate(const std::vector<SocketAddress>& found) {
  std::vector<SocketAddress> first, second, both;
  for (const SocketAddress& one : found) {
    (one.family() == found.front().family() ? first : second).push_back(one);
  }
  for (size_t i = 0; i < std::max(first.size(), second.size()); ++i) {
    if (i < first.size()) both.push_back(first[i]);
    if (i < second.size()) both.push_back(second[i]);
  }
  return both;
}

}  // namespace

Result<Fd> StartConnect(const SocketAddress& to, const SocketAddress* from) {
  Fd socket(::socket(to.family(), SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return SystemError("socket");
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (from != nullptr) {
    // The port is chosen by connect(), which knows that many may share it.
    setsockopt(socket.get(), IPPROTO_IP, IP_BIND_ADDRESS_NO_PORT, &on, sizeof on);
    if (bind(socket.get(), from->get(), from->size) != 0) {
      return Status(Code::kPeerUnreachable, std::string("bind: ") + std::strerror(errno));
    }
  }
  if (connect(socket.get(), to.get(), to.size) == 0 || errno == EINPROGRESS) return socket;
  return Status(Code::kPeerUnreachable, std::strerror(errno));
}

int ConnectError(const Fd& socket) {
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error;
}

Result<Fd> ConnectTcp(const Address& address, Patience patience) {
  auto found = Resolve(address);
  if (!found.ok()) return found.status();
  return Attempts(address, Alternate(found.value())).Run(patience);
}

}  // namespace mooncake
