#include "base/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <charconv>
#include <cstring>
#include <memory>

namespace mooncake {
namespace {

struct FreeAddrInfo {
  void operator()(addrinfo* info) const { freeaddrinfo(info); }
};
using AddrInfo = std::unique_ptr<addrinfo, FreeAddrInfo>;

Result<AddrInfo> Resolve(const Address& address, int flags) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | flags;
  addrinfo* found = nullptr;
  const int error =
      getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &found);
  if (error != 0) {
    return Status(Code::kPeerUnreachable, address.ToString() + ": " + gai_strerror(error));
  }
  return AddrInfo(found);
}

Result<Fd> ConnectOne(const addrinfo& info, const std::string& name, Deadline deadline) {
  Fd socket(::socket(info.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return SystemError("socket for " + name);
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  int error = connect(socket.get(), info.ai_addr, info.ai_addrlen) == 0 ? 0 : errno;
  if (error == EINPROGRESS) {
    auto ready = WaitFor(socket, POLLOUT, deadline);
    if (!ready.ok()) return Status(ready.status().code(), "connect to " + name + ": timed out");
    socklen_t size = sizeof error;
    getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  }
  if (error != 0) {
    return Status(Code::kPeerUnreachable, "connect to " + name + ": " + std::strerror(error));
  }
  return socket;
}

Status Broken(const char* what, ssize_t count) {
  return Status(Code::kPeerUnreachable,
                std::string(what) + ": " +
                    (count == 0 ? "the peer closed the connection" : std::strerror(errno)));
}

}  // namespace

std::string Address::ToString() const {
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

Result<Address> ParseAddress(std::string_view text) {
  const auto bad = [&](const char* why) {
    return Status(Code::kInvalidArgument,
                  "\"" + std::string(text) + "\" " + why + "; write host:port or [v6]:port");
  };
  const size_t colon = text.rfind(':');
  if (colon == std::string_view::npos || colon == 0) return bad("has no host or no port");
  std::string_view host = text.substr(0, colon);
  if (host.front() == '[') {
    if (host.size() < 3 || host.back() != ']') return bad("has an unclosed bracket");
    host = host.substr(1, host.size() - 2);
  } else if (host.find(':') != std::string_view::npos) {
    return bad("has an IPv6 host without brackets");
  }
  const std::string_view digits = text.substr(colon + 1);
  unsigned port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size() || port > 65535) {
    return bad("has no port between 0 and 65535");
  }
  return Address{std::string(host), static_cast<uint16_t>(port)};
}

Status SystemError(std::string_view what, int error) {
  return Status(Code::kSystem, std::string(what) + ": " + std::strerror(error));
}

Result<Fd> ListenTcp(const Address& address) {
  auto info = Resolve(address, AI_PASSIVE);
  if (!info.ok()) return Status(Code::kSystem, info.status().message());
  const addrinfo& first = *info.value();
  Fd socket(::socket(first.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return SystemError("socket for " + address.ToString());
  const int on = 1;
  setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(socket.get(), first.ai_addr, first.ai_addrlen) != 0 || listen(socket.get(), 1024) != 0) {
    return SystemError("listen on " + address.ToString());
  }
  return socket;
}

Result<Address> LocalAddress(const Fd& socket) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  auto* generic = reinterpret_cast<sockaddr*>(&storage);
  if (getsockname(socket.get(), generic, &size) != 0) return SystemError("getsockname");
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  const int error = getnameinfo(generic, size, host, sizeof host, port, sizeof port,
                                NI_NUMERICHOST | NI_NUMERICSERV);
  if (error != 0) return Status(Code::kSystem, std::string("getnameinfo: ") + gai_strerror(error));
  return Address{host, static_cast<uint16_t>(std::stoi(port))};
}

Result<Fd> ConnectTcp(const Address& address, Deadline deadline) {
  auto info = Resolve(address, 0);
  if (!info.ok()) return info.status();
  Status last(Code::kPeerUnreachable, address.ToString() + ": no address");
  for (const addrinfo* one = info.value().get(); one != nullptr; one = one->ai_next) {
    auto socket = ConnectOne(*one, address.ToString(), deadline);
    if (socket.ok()) return socket;
    last = socket.status();
  }
  return last;
}

Result<short> WaitFor(const Fd& socket, short events, Deadline deadline) {
  for (;;) {
    pollfd one{socket.get(), events, 0};
    const int count = poll(&one, 1, deadline.PollMillis());
    if (count > 0) return one.revents;
    if (count < 0 && errno != EINTR) return SystemError("poll");
    if (deadline.passed()) return Status(Code::kTimeout, "timed out");
  }
}

Status SendAll(const Fd& socket, const void* data, size_t size, Deadline deadline) {
  auto* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t count = send(socket.get(), next, size, MSG_NOSIGNAL);
    if (count > 0) {
      next += count;
      size -= static_cast<size_t>(count);
    } else if (errno == EAGAIN) {
      auto ready = WaitFor(socket, POLLOUT, deadline);
      if (!ready.ok()) return ready.status();
    } else if (errno != EINTR) {
      return Broken("send", count);
    }
  }
  return Status::Ok();
}

Status RecvAll(const Fd& socket, void* data, size_t size, Deadline deadline) {
  auto* next = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t count = recv(socket.get(), next, size, 0);
    if (count > 0) {
      next += count;
      size -= static_cast<size_t>(count);
    } else if (count < 0 && errno == EAGAIN) {
      auto ready = WaitFor(socket, POLLIN, deadline);
      if (!ready.ok()) return ready.status();
    } else if (count == 0 || errno != EINTR) {
      return Broken("receive", count);
    }
  }
  return Status::Ok();
}

}  // namespace mooncake
