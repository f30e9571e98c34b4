#include "transfer/probe.h"

#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <utility>

#include "base/random.h"
#include "base/socket.h"
#include "transfer/protocol.h"

namespace mooncake {
namespace {

constexpr int kRepeats = 3;

struct FreeAddrInfo {
  void operator()(addrinfo* info) const { freeaddrinfo(info); }
};
using AddrInfo = std::unique_ptr<addrinfo, FreeAddrInfo>;

Result<AddrInfo> Numeric(const Address& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICHOST | AI_NUMERICSERV;
  addrinfo* found = nullptr;
  const std::string port = std::to_string(address.port);
  const int error = getaddrinfo(address.host.c_str(), port.c_str(), &hints, &found);
  if (error == 0) return AddrInfo(found);
  return Status(Code::kInvalidArgument, address.host + ": " + gai_strerror(error));
}

Status Refused(const char* what, int error) {
  return Status(Code::kPeerUnreachable, std::string(what) + ": " + std::strerror(error));
}

Status AwaitConnected(const Fd& socket, Deadline deadline) {
  auto ready = WaitFor(socket, POLLOUT, deadline);
  if (!ready.ok()) return Status(ready.status().code(), "connect: " + ready.status().message());
  int error = 0;
  socklen_t size = sizeof error;
  getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size);
  return error == 0 ? Status::Ok() : Refused("connect", error);
}

// Both hosts are numeric.
Result<Fd> ConnectFrom(const std::string& local, const Address& remote, Deadline deadline) {
  auto from = Numeric({local, 0});
  auto to = Numeric(remote);
  if (!from.ok()) return from.status();
  if (!to.ok()) return to.status();
  const addrinfo& target = *to.value();
  Fd socket(::socket(target.ai_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return SystemError("socket");
  const int on = 1;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (bind(socket.get(), from.value()->ai_addr, from.value()->ai_addrlen) != 0) {
    return Refused(("from " + local).c_str(), errno);
  }
  if (connect(socket.get(), target.ai_addr, target.ai_addrlen) != 0 && errno != EINPROGRESS) {
    return Refused("connect", errno);
  }
  MC_RETURN_IF_ERROR(AwaitConnected(socket, deadline));
  return socket;
}

// One question and its answer, whose body is at most `longest`.
Result<Bytes> Ask(const Fd& socket, Message type, std::span<const uint8_t> body, Message expected,
                  uint32_t longest, Deadline deadline) {
  const Bytes question = Frame(type, 1, body);
  MC_RETURN_IF_ERROR(SendAll(socket, question.data(), question.size(), deadline));
  FrameHeaderBytes head;
  MC_RETURN_IF_ERROR(RecvAll(socket, head.data(), head.size(), deadline));
  auto header = DecodeFrameHeader(head);
  if (!header.ok()) return header.status();
  if (header.value().body_bytes > longest) return Status(Code::kWire, "an answer that is too long");
  Bytes answer(header.value().body_bytes);
  MC_RETURN_IF_ERROR(RecvAll(socket, answer.data(), answer.size(), deadline));
  const auto answered = static_cast<Message>(header.value().type);
  if (answered == Message::kError) return DecodeError(answer);
  if (answered != expected) return Status(Code::kWire, "an answer of another type");
  return answer;
}

Result<HelloReply> Greet(const Fd& socket, uint64_t expected_engine_id, Deadline deadline) {
  const Bytes hello = Encode(Hello{RandomId(), expected_engine_id});
  auto answer = Ask(socket, Message::kHello, hello, Message::kHelloReply, kControlBytes, deadline);
  if (!answer.ok()) return answer.status();
  auto reply = DecodeHelloReply(answer.value());
  if (reply.ok() && expected_engine_id != 0 && reply.value().engine_id != expected_engine_id) {
    return Status(Code::kWrongPeer, "another engine listens here");
  }
  return reply;
}

Bytes Pattern(size_t size) {
  Bytes bytes(size);
  uint64_t state = RandomId();
  for (uint8_t& byte : bytes) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    byte = static_cast<uint8_t>(state >> 56);
  }
  return bytes;
}

// Seconds until the same bytes were back, the best of some.
Result<double> Echo(const Fd& socket, uint32_t size, Deadline deadline) {
  const Bytes bytes = Pattern(size);
  double best = 1e9;
  for (int i = 0; i < kRepeats; ++i) {
    const double start = MonotonicSeconds();
    auto answer = Ask(socket, Message::kEcho, bytes, Message::kEchoReply, size, deadline);
    best = std::min(best, MonotonicSeconds() - start);
    if (!answer.ok()) return answer.status();
    if (answer.value() != bytes) {
      return Status(Code::kChecksumMismatch, "an echo brought other bytes back");
    }
  }
  return best;
}

}  // namespace

Result<PathProbe> ProbePath(const std::string& local, const std::string& remote,
                            uint64_t expected_engine_id, Deadline deadline) {
  auto address = ParseAddress(remote);
  if (!address.ok()) return address.status();
  const double start = MonotonicSeconds();
  auto socket = local.empty() ? ConnectTcp(address.value(), deadline)
                              : ConnectFrom(local, address.value(), deadline);
  if (!socket.ok()) return socket.status();
  auto reply = Greet(socket.value(), expected_engine_id, deadline);
  if (!reply.ok()) return reply.status();

  PathProbe probe;
  probe.connect_s = MonotonicSeconds() - start;
  probe.engine_id = reply.value().engine_id;
  probe.host_id = reply.value().host_id;
  probe.endpoints = {remote};
  auto latency = Echo(socket.value(), 0, deadline);
  if (!latency.ok()) return latency.status();
  probe.latency_s = latency.value();
  auto seconds = Echo(socket.value(), kEchoBytes, deadline);
  if (!seconds.ok()) return seconds.status();
  probe.rate_bytes_per_s = 2.0 * kEchoBytes / seconds.value();
  return probe;
}

}  // namespace mooncake
