#include "transfer/probe.h"

#include <algorithm>
#include <utility>

#include "base/random.h"
#include "base/socket.h"
#include "transfer/protocol.h"
#include "transfer/transports/tcp_lane.h"
#include "transfer/transports/tcp_route.h"

namespace mooncake {
namespace {

constexpr int kRepeats = 3;

// `remote` is numeric where `local` is given.
Result<TcpLane::Greeted> Connect(const std::string& local, const Address& remote,
                                 const Hello& hello, Deadline deadline) {
  if (local.empty()) return TcpLane::Connect(remote, hello, deadline);
  auto lane = TcpLane::Start({local, remote});
  if (!lane.ok()) return lane.status();
  auto reply = lane.value()->Greet(hello, deadline);
  if (!reply.ok()) return reply.status();
  return TcpLane::Greeted{std::move(lane).value(), std::move(reply).value()};
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
Result<double> Echo(TcpLane& lane, uint32_t size, Deadline deadline) {
  const Bytes bytes = Pattern(size);
  double best = 1e9;
  for (int i = 0; i < kRepeats; ++i) {
    const double start = MonotonicSeconds();
    auto answer = lane.Echo(bytes, deadline);
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
  auto greeted = Connect(local, address.value(), {RandomId(), expected_engine_id}, deadline);
  if (!greeted.ok()) return greeted.status();
  auto& [lane, reply] = greeted.value();

  PathProbe probe;
  probe.connect_s = MonotonicSeconds() - start;
  probe.engine_id = reply.engine_id;
  probe.host_id = reply.host_id;
  auto endpoints = Endpoints(reply, lane->socket());
  if (!endpoints.ok()) return endpoints.status();
  probe.endpoints = std::move(endpoints).value();
  auto latency = Echo(*lane, 0, deadline);
  if (!latency.ok()) return latency.status();
  probe.latency_s = latency.value();
  auto seconds = Echo(*lane, kEchoBytes, deadline);
  if (!seconds.ok()) return seconds.status();
  probe.rate_bytes_per_s = 2.0 * kEchoBytes / seconds.value();
  return probe;
}

}  // namespace mooncake
