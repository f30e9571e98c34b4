#include "transfer/transports/tcp_lane.h"

#include <poll.h>
#include <sys/socket.h>

#include <cstring>
#include <string>
#include <utility>

#include "base/random.h"

namespace mooncake {

TcpLane::TcpLane(Fd socket) : socket_(std::move(socket)), id_(RandomId()) {}

// Resets the connection: nobody waits for what was sent to be received, and no socket stays behind
// in TIME_WAIT. Closing alone would do nothing while a forked child holds the descriptor too.
TcpLane::~TcpLane() {
  const sockaddr nobody{.sa_family = AF_UNSPEC, .sa_data = {}};
  connect(socket_.get(), &nobody, sizeof nobody);
}

Result<TcpLane::Greeted> TcpLane::Connect(const Address& address, const Hello& hello,
                                          Patience patience) {
  auto socket = ConnectTcp(address, patience);
  if (!socket.ok()) return socket.status();
  std::unique_ptr<TcpLane> lane(new TcpLane(std::move(socket).value()));
  auto reply = lane->Greet(hello, patience);
  if (!reply.ok()) return reply.status();
  return Greeted{std::move(lane), std::move(reply).value()};
}

Result<std::unique_ptr<TcpLane>> TcpLane::Start(const Route& route) {
  auto to = ResolveNumeric(route.remote);
  if (!to.ok()) return to.status();
  Result<SocketAddress> from = SocketAddress();
  if (!route.local.empty()) from = ResolveNumeric({route.local, 0});
  if (!from.ok()) return from.status();
  auto socket = StartConnect(to.value(), route.local.empty() ? nullptr : &from.value());
  if (!socket.ok()) {
    return Status(socket.status().code(),
                  "connect to " + route.ToString() + ": " + socket.status().message());
  }
  return std::unique_ptr<TcpLane>(new TcpLane(std::move(socket).value()));
}

Result<HelloReply> TcpLane::Greet(const Hello& hello, Patience patience) {
  auto ready = WaitFor(socket_, POLLOUT, patience);
  if (!ready.ok()) return Status(ready.status().code(), "connect: " + ready.status().message());
  const int error = ConnectError(socket_);
  if (error != 0) {
    return Status(Code::kPeerUnreachable, std::string("connect: ") + std::strerror(error));
  }
  auto answer = Call(Message::kHello, Encode(Named(hello)), Message::kHelloReply, patience);
  if (!answer.ok()) return answer.status();
  return OnGreeted(hello, answer.value());
}

Hello TcpLane::Named(Hello hello) const {
  hello.lane_id = id_;
  return hello;
}

Result<HelloReply> TcpLane::OnGreeted(const Hello& hello, std::span<const uint8_t> answer) {
  auto reply = DecodeHelloReply(answer);
  if (!reply.ok()) return reply.status();
  const uint64_t expected = hello.expected_engine_id;
  if (expected != 0 && expected != reply.value().engine_id) {
    return Status(Code::kWrongPeer, "another engine listens here now");
  }
  is_greeted_ = true;
  return reply;
}

Result<OpenReply> TcpLane::Open(const SegmentRef& ref, Patience patience) {
  auto answer = Call(Message::kOpen, Encode(ref), Message::kOpenReply, patience);
  if (!answer.ok()) return answer.status();
  return DecodeOpenReply(answer.value());
}

Status TcpLane::Notify(const NumberedNote& note, Patience patience) {
  return Call(Message::kNotify, Encode(note), Message::kNotifyReply, patience).status();
}

Result<Bytes> TcpLane::Echo(std::span<const uint8_t> bytes, Patience patience) {
  return Call(Message::kEcho, bytes, Message::kEchoReply, patience, kEchoBytes);
}

Status TcpLane::CloseLane(uint64_t lane_id, Patience patience) {
  return Call(Message::kCloseLane, EncodeNumber(lane_id), Message::kLaneClosed, patience).status();
}

bool TcpLane::IsQuiet() const {
  pollfd one{socket_.get(), POLLIN | POLLRDHUP, 0};
  return PollNow({&one, 1}) == 0;
}

void TcpLane::Interrupt() const { shutdown(socket_.get(), SHUT_RDWR); }

// One question and its answer, whose body is at most `longest`.
Result<Bytes> TcpLane::Call(Message type, std::span<const uint8_t> body, Message expected,
                            Patience patience, uint32_t longest) {
  const uint64_t request_id = NextRequestId();
  const Bytes question = Frame(type, request_id, body);
  MC_RETURN_IF_ERROR(SendAll(socket_, question.data(), question.size(), patience));
  FrameHeaderBytes bytes;
  MC_RETURN_IF_ERROR(RecvAll(socket_, bytes.data(), bytes.size(), patience));
  auto header = DecodeFrameHeader(bytes);
  if (!header.ok()) return header.status();
  if (header.value().body_bytes > longest || header.value().request_id != request_id) {
    return Status(Code::kWire, "an answer that fits no question");
  }
  Bytes answer(header.value().body_bytes);
  MC_RETURN_IF_ERROR(RecvAll(socket_, answer.data(), answer.size(), patience));
  const auto answered = static_cast<Message>(header.value().type);
  if (answered == Message::kError) return DecodeError(answer);
  if (answered != expected) return Status(Code::kWire, "an answer of another type");
  return answer;
}

}  // namespace mooncake
