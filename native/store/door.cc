#include "store/door.h"

#include <sys/socket.h>
#include <unistd.h>

#include <string>

#include "transfer/unix_socket.h"

namespace mooncake::store {
namespace {

std::string DoorOf(const Address& address) { return "mooncake-master-" + address.ToString(); }

// Whoever else of this host has taken the name is not the master.
bool IsOfThisUser(const Fd& door) {
  ucred peer{};
  socklen_t size = sizeof peer;
  return getsockopt(door.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 &&
         peer.uid == geteuid();
}

}  // namespace

Result<Fd> OpenDoor(const Address& address) { return ListenUnix(DoorOf(address), SOCK_STREAM); }

Fd Nearest(Fd tcp) {
  const auto here = LocalAddress(tcp);
  const auto there = PeerAddress(tcp);
  if (!here.ok() || !there.ok() || here.value().host != there.value().host) return tcp;
  const auto& [host, port] = there.value();
  // The master may be bound to all addresses; but one at all of IPv4 is not reached by IPv6.
  const bool is_ipv6 = host.find(':') != std::string::npos && !host.starts_with("::ffff:");
  for (const Address& bound : {there.value(), Address{"0.0.0.0", port}, Address{"::", port}}) {
    if (is_ipv6 && bound.host == "0.0.0.0") continue;
    auto door = ConnectUnix(DoorOf(bound), SOCK_STREAM);
    if (door.ok() && IsOfThisUser(door.value())) return std::move(door).value();
  }
  return tcp;
}

}  // namespace mooncake::store
