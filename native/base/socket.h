// TCP addresses and sockets, for shells. All descriptors are close-on-exec and non-blocking.
//
// Thread safety: free functions over descriptors that the caller owns.
#pragma once

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/deadline.h"
#include "base/fd.h"
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

// The numeric address and port that a socket is bound to.
Result<Address> LocalAddress(const Fd& socket);

// Connects, with TCP_NODELAY. kPeerUnreachable when the kernel says no, kTimeout at the deadline.
Result<Fd> ConnectTcp(const Address& address, Deadline deadline);

// Sends or receives exactly `size` bytes on a non-blocking socket. kPeerUnreachable when the
// connection ends, kTimeout at the deadline; the connection is not to be used after either.
Status SendAll(const Fd& socket, const void* data, size_t size, Deadline deadline);
Status RecvAll(const Fd& socket, void* data, size_t size, Deadline deadline);

// Waits until poll() reports one of `events`, an error or a hang-up. Gives revents.
Result<short> WaitFor(const Fd& socket, short events, Deadline deadline);

}  // namespace mooncake
