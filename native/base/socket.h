// TCP addresses and sockets, for shells. All descriptors are close-on-exec and non-blocking.
//
// Thread safety: free functions over descriptors that the caller owns.
#pragma once

#include <poll.h>
#include <sys/socket.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/fd.h"
#include "base/patience.h"
#include "base/status.h"

namespace mooncake {

struct Address {
  std::string host;  // without brackets
  uint16_t port = 0;

  std::string ToString() const;  // an IPv6 host in brackets
};

// Reads "host:port" or "[v6]:port".
Result<Address> ParseAddress(std::string_view text);

// A kSystem status: `what`, then what errno says. `error` is an errno value.
Status SystemError(std::string_view what, int error = errno);

// Listens on `address`; port 0 takes a free one. SO_REUSEADDR is set.
Result<Fd> ListenTcp(const Address& address);

// The numeric address and port that a socket is bound or connected to.
Result<Address> LocalAddress(const Fd& socket);
Result<Address> PeerAddress(const Fd& socket);

// An address as the kernel takes it.
struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;

  int family() const { return storage.ss_family; }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&storage); }
};

// What a host name stands for, best first; of a numeric host, itself. kPeerUnreachable: nothing.
Result<std::vector<SocketAddress>> Resolve(const Address& address);
Result<SocketAddress> ResolveNumeric(const Address& address);

// Begins to connect, with TCP_NODELAY, from the address `from` unless that is null. The socket is
// writable once it is connected or has failed; see ConnectError.
Result<Fd> StartConnect(const SocketAddress& to, const SocketAddress* from = nullptr);
// errno of how connecting ended; 0: it is connected.
int ConnectError(const Fd& socket);

// Connects, with TCP_NODELAY. All that the host resolves to is tried, the next when one has failed
// or 250 ms later, alternating between IPv6 and IPv4; the first that answers is taken (RFC 8305).
// kPeerUnreachable when the kernel says no to all, kTimeout at the deadline, kCancelled.
Result<Fd> ConnectTcp(const Address& address, Patience patience);

// Sends or receives exactly `size` bytes on a non-blocking socket. kPeerUnreachable when the
// connection ends, kTimeout or kCancelled; the connection is not to be used after either.
Status SendAll(const Fd& socket, const void* data, size_t size, Patience patience);
Status RecvAll(const Fd& socket, void* data, size_t size, Patience patience);

// Sends or receives what the kernel takes or has right now: 0 bytes where that is nothing.
// kPeerUnreachable when the connection has ended.
Result<size_t> SendSome(const Fd& socket, std::span<const uint8_t> data);
Result<size_t> RecvSome(const Fd& socket, std::span<uint8_t> data);

// poll() without waiting, and without giving up when a signal comes.
int PollNow(std::span<pollfd> polled);
// Waits until poll() reports one of `events`, an error or a hang-up. Gives revents.
Result<short> WaitFor(const Fd& socket, short events, Patience patience);

}  // namespace mooncake
