#include "transfer/probe.h"

#include <poll.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/random.h"
#include "base/socket.h"
#include "transfer/protocol.h"
#include "transfer/transports/tcp_route.h"

namespace mooncake {
namespace {

constexpr int kRepeats = 3;

// Both hosts are numeric.
Result<Fd> ConnectFrom(const std::string& local, const Address& remote, Deadline deadline) {
  auto from = ResolveNumeric({local, 0});
  auto to = ResolveNumeric(remote);
  if (!from.ok()) return from.status();
  if (!to.ok()) return to.status();
  auto socket = StartConnect(to.value(), &from.value());
  if (!socket.ok()) {
    return Status(Code::kPeerUnreachable, "from " + local + ": " + socket.status().message());
  }
  auto ready = WaitFor(socket.value(), POLLOUT, deadline);
  if (!ready.ok()) return Status(ready.status().code(), "connect: " + ready.status().message());
  const int error = ConnectError(socket.value());
  if (error == 0) return socket;
  return Status(Code::kPeerUnreachable, std::string("connect: ") + std::strerror(error));
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

Result<std::vector<std::string>> Endpoints(const HelloReply& reply, const Fd& socket) {
  auto answered = PeerAddress(socket);
  if (!answered.ok()) return answered.status();
  std::vector<std::string> found;
  for (const Address& address : Reachable(reply.endpoints, answered.value())) {
    found.push_back(address.ToString());
  }
  return found;
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
  auto endpoints = Endpoints(reply.value(), socket.value());
  if (!endpoints.ok()) return endpoints.status();
  probe.endpoints = std::move(endpoints).value();
  auto latency = Echo(socket.value(), 0, deadline);
  if (!latency.ok()) return latency.status();
  probe.latency_s = latency.value();
  auto seconds = Echo(socket.value(), kEchoBytes, deadline);
  if (!seconds.ok()) return seconds.status();
  probe.rate_bytes_per_s = 2.0 * kEchoBytes / seconds.value();
  return probe;
}

}  // namespace mooncake
