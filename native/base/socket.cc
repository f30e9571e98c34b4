#include "base/socket.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <charconv>
#include <cstring>
#include <memory>

namespace mooncake {
namespace {

Result<Address> ToNumeric(const SocketAddress& address) {
  char host[NI_MAXHOST];
  char port[NI_MAXSERV];
  const int error = getnameinfo(address.get(), address.size, host, sizeof host, port, sizeof port,
                                NI_NUMERICHOST | NI_NUMERICSERV);
  if (error != 0) return Status(Code::kSystem, std::string("getnameinfo: ") + gai_strerror(error));
  return Address{host, static_cast<uint16_t>(std::stoi(port))};
}

struct FreeAddrInfo {
  void operator()(addrinfo* info) const { freeaddrinfo(info); }
};
using AddrInfo = std::unique_ptr<addrinfo, FreeAddrInfo>;

Result<AddrInfo> LookUp(const Address& address, int flags) {
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
    return Status(Code::kInvalidArgument, std::string("\"").append(text).append("\" ").append(why) +
                                              "; write host:port or [v6]:port");
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
  auto info = LookUp(address, AI_PASSIVE);
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
  SocketAddress address;
  address.size = sizeof address.storage;
  auto* generic = reinterpret_cast<sockaddr*>(&address.storage);
  if (getsockname(socket.get(), generic, &address.size) != 0) return SystemError("getsockname");
  return ToNumeric(address);
}

Result<Address> PeerAddress(const Fd& socket) {
  SocketAddress address;
  address.size = sizeof address.storage;
  auto* generic = reinterpret_cast<sockaddr*>(&address.storage);
  if (getpeername(socket.get(), generic, &address.size) != 0) return SystemError("getpeername");
  return ToNumeric(address);
}

Result<std::vector<SocketAddress>> Resolve(const Address& address) {
  auto info = LookUp(address, 0);
  if (!info.ok()) return info.status();
  std::vector<SocketAddress> found;
  for (const addrinfo* one = info.value().get(); one != nullptr; one = one->ai_next) {
    SocketAddress& target = found.emplace_back();
    target.size = std::min<socklen_t>(one->ai_addrlen, sizeof target.storage);
    std::memcpy(&target.storage, one->ai_addr, target.size);
  }
  return found;
}

Result<SocketAddress> ResolveNumeric(const Address& address) {
  auto info = LookUp(address, AI_NUMERICHOST);
  if (!info.ok()) return info.status();
  SocketAddress found;
  found.size = std::min<socklen_t>(info.value()->ai_addrlen, sizeof found.storage);
  std::memcpy(&found.storage, info.value()->ai_addr, found.size);
  return found;
}

int PollNow(std::span<pollfd> polled) {
  int count;
  do {
    count = poll(polled.data(), polled.size(), 0);
  } while (count < 0 && errno == EINTR);
  return count;
}

Result<short> WaitFor(const Fd& socket, short events, Patience patience) {
  for (;;) {
    pollfd one{socket.get(), events, 0};
    const int count = poll(&one, 1, patience.PollMillis());
    if (count > 0) return one.revents;
    if (count < 0 && errno != EINTR) return SystemError("poll");
    MC_RETURN_IF_ERROR(patience.Check("waiting"));
  }
}

Status SendAll(const Fd& socket, const void* data, size_t size, Patience patience) {
  auto* next = static_cast<const char*>(data);
  while (size > 0) {
    const ssize_t count = send(socket.get(), next, size, MSG_NOSIGNAL);
    if (count > 0) {
      next += count;
      size -= static_cast<size_t>(count);
    } else if (errno == EAGAIN) {
      auto ready = WaitFor(socket, POLLOUT, patience);
      if (!ready.ok()) return ready.status();
    } else if (errno != EINTR) {
      return Broken("send", count);
    }
  }
  return Status::Ok();
}

Status RecvAll(const Fd& socket, void* data, size_t size, Patience patience) {
  auto* next = static_cast<char*>(data);
  while (size > 0) {
    const ssize_t count = recv(socket.get(), next, size, 0);
    if (count > 0) {
      next += count;
      size -= static_cast<size_t>(count);
    } else if (count < 0 && errno == EAGAIN) {
      auto ready = WaitFor(socket, POLLIN, patience);
      if (!ready.ok()) return ready.status();
    } else if (count == 0 || errno != EINTR) {
      return Broken("receive", count);
    }
  }
  return Status::Ok();
}

Result<size_t> SendSome(const Fd& socket, std::span<const uint8_t> data) {
  const ssize_t count = send(socket.get(), data.data(), data.size(), MSG_NOSIGNAL);
  if (count >= 0) return static_cast<size_t>(count);
  if (errno == EAGAIN || errno == EINTR) return size_t{0};
  return Broken("send", count);
}

Result<size_t> RecvSome(const Fd& socket, std::span<uint8_t> data) {
  const ssize_t count = recv(socket.get(), data.data(), data.size(), 0);
  if (count > 0) return static_cast<size_t>(count);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return size_t{0};
  return Broken("receive", count);
}

}  // namespace mooncake
