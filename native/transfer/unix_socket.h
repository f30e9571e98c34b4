// Abstract Unix sockets, and packets on them: a packet is one frame, and may carry one descriptor.
//
// Thread safety: free functions over descriptors that the caller owns.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <optional>
#include <span>
#include <string>

#include "base/fd.h"
#include "base/status.h"
#include "transfer/protocol.h"

namespace mooncake {

// `name` is in the abstract namespace: no file, gone with its last descriptor. Neither waits.
Result<Fd> ListenUnix(const std::string& name, int type = SOCK_SEQPACKET);
Result<Fd> ConnectUnix(const std::string& name, int type = SOCK_SEQPACKET);

struct Packet {
  Message type = Message::kError;
  uint64_t request_id = 0;
  Bytes body;
  Fd passed;
};

// Never blocks; kPeerUnreachable when the peer is gone or takes nothing in.
Status SendPacket(const Fd& socket, Message type, uint64_t request_id,
                  std::span<const uint8_t> body, const Fd* passed = nullptr);

// Whether ReceivePacket has anything to tell, a packet or an error; costs half of it.
bool HasPacket(const Fd& socket);

// Never blocks; nothing when there is no packet now. kPeerUnreachable when the peer has closed,
// kWire when what came is no packet of ours.
Result<std::optional<Packet>> ReceivePacket(const Fd& socket);

// Who is at the other end.
struct Credentials {
  pid_t pid = 0;  // 0: it has no number here, since it lives in another pid namespace
  uid_t uid = 0;
  Fd pidfd;  // of the process that connected or listened; readable once it is dead
};
// kSystem when the process cannot be named, for example because it lives in another pid namespace.
Result<Credentials> PeerCredentials(const Fd& socket);

}  // namespace mooncake
