#include "transfer/unix_socket.h"

#include <sys/syscall.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/socket.h"

namespace mooncake {
namespace {

#ifdef SO_PEERPIDFD
constexpr int kPeerPidFd = SO_PEERPIDFD;
#else
constexpr int kPeerPidFd = 77;  // Linux 6.5; headers may be older than the kernel
#endif

struct UnixAddress {
  sockaddr_un address{};
  socklen_t size = 0;

  explicit UnixAddress(const std::string& name) {
    MC_CHECK(name.size() + 1 < sizeof address.sun_path, "%zu", name.size());
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path + 1, name.data(), name.size());
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }
};

Result<Fd> NewSocket(int type) {
  Fd socket(::socket(AF_UNIX, type | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return SystemError("Unix socket");
  return socket;
}

Fd PassedDescriptor(msghdr& message) {
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part; part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    int fd;
    std::memcpy(&fd, CMSG_DATA(part), sizeof fd);
    return Fd(fd);
  }
  return Fd();
}

Result<Packet> Parse(std::span<const uint8_t> bytes, Fd passed) {
  if (bytes.size() < kFrameHeaderBytes) return Status(Code::kWire, "a packet without a header");
  auto header = DecodeFrameHeader(bytes.first<kFrameHeaderBytes>());
  if (!header.ok()) return header.status();
  const auto body = bytes.subspan(kFrameHeaderBytes);
  if (body.size() != header.value().body_bytes) return Status(Code::kWire, "a packet cut off");
  return Packet{static_cast<Message>(header.value().type), header.value().request_id,
                Bytes(body.begin(), body.end()), std::move(passed)};
}

}  // namespace

Result<Fd> ListenUnix(const std::string& name, int type) {
  auto socket = NewSocket(type);
  if (!socket.ok()) return socket;
  const UnixAddress address(name);
  if (bind(socket.value().get(), address.get(), address.size) != 0 ||
      listen(socket.value().get(), 256) != 0) {
    return SystemError("listen on Unix socket @" + name);
  }
  return socket;
}

Result<Fd> ConnectUnix(const std::string& name, int type) {
  auto socket = NewSocket(type);
  if (!socket.ok()) return socket;
  const UnixAddress address(name);
  if (connect(socket.value().get(), address.get(), address.size) != 0) {
    return Status(Code::kPeerUnreachable, "Unix socket @" + name + ": " + std::strerror(errno));
  }
  return socket;
}

Status SendPacket(const Fd& socket, Message type, uint64_t request_id,
                  std::span<const uint8_t> body, const Fd* passed) {
  Bytes frame = Frame(type, request_id, body);
  iovec run{frame.data(), frame.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &run;
  message.msg_iovlen = 1;
  if (passed != nullptr) {
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr* part = CMSG_FIRSTHDR(&message);
    part->cmsg_level = SOL_SOCKET;
    part->cmsg_type = SCM_RIGHTS;
    part->cmsg_len = CMSG_LEN(sizeof(int));
    const int fd = passed->get();
    std::memcpy(CMSG_DATA(part), &fd, sizeof fd);
  }
  ssize_t sent;
  do {
    sent = sendmsg(socket.get(), &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent == static_cast<ssize_t>(frame.size())) return Status::Ok();
  return Status(Code::kPeerUnreachable, std::string("Unix socket: ") + std::strerror(errno));
}

bool HasPacket(const Fd& socket) {
  uint8_t byte;
  const ssize_t count = recv(socket.get(), &byte, sizeof byte, MSG_PEEK | MSG_DONTWAIT);
  return count >= 0 || (errno != EAGAIN && errno != EINTR);
}

Result<std::optional<Packet>> ReceivePacket(const Fd& socket) {
  uint8_t bytes[kFrameHeaderBytes + kControlBytes];
  iovec run{bytes, sizeof bytes};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
  msghdr message{};
  message.msg_iov = &run;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = CMSG_LEN(sizeof(int));  // the padding would hold a second descriptor
  ssize_t count;
  do {
    count = recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    // A peer that closed before it had read everything: what it had said comes next.
  } while (count < 0 && (errno == EINTR || errno == ECONNRESET));
  if (count < 0 && errno == EAGAIN) return std::optional<Packet>();
  if (count <= 0) {
    return Status(Code::kPeerUnreachable,
                  count == 0 ? "the peer closed the connection" : std::strerror(errno));
  }
  auto packet = Parse(std::span(bytes, static_cast<size_t>(count)), PassedDescriptor(message));
  if (!packet.ok()) return packet.status();
  return std::optional<Packet>(std::move(packet).value());
}

Result<Credentials> PeerCredentials(const Fd& socket) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) {
    return SystemError("SO_PEERCRED");
  }
  int pidfd = -1;
  size = sizeof pidfd;
  if (getsockopt(socket.get(), SOL_SOCKET, kPeerPidFd, &pidfd, &size) != 0) {
    pidfd = static_cast<int>(syscall(SYS_pidfd_open, peer.pid, 0));
  }
  if (pidfd < 0) return SystemError("a descriptor of process " + std::to_string(peer.pid));
  return Credentials{peer.pid, peer.uid, Fd(pidfd)};
}

}  // namespace mooncake
