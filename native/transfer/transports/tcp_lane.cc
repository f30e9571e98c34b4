#include "transfer/transports/tcp_lane.h"

#include <poll.h>
#include <sys/socket.h>

#include "transfer/transports/tcp_batch.h"

namespace mooncake {

Result<TcpLane::Greeted> TcpLane::Connect(const Address& address, const Hello& hello,
                                          Deadline deadline) {
  auto socket = ConnectTcp(address, deadline);
  if (!socket.ok()) return socket.status();
  std::unique_ptr<TcpLane> lane(new TcpLane(std::move(socket).value()));
  auto answer = lane->Call(Message::kHello, Encode(hello), Message::kHelloReply, deadline);
  if (!answer.ok()) return answer.status();
  auto reply = DecodeHelloReply(answer.value());
  if (!reply.ok()) return reply.status();
  return Greeted{std::move(lane), std::move(reply).value()};
}

Result<OpenReply> TcpLane::Open(const SegmentRef& ref, Deadline deadline) {
  auto answer = Call(Message::kOpen, Encode(ref), Message::kOpenReply, deadline);
  if (!answer.ok()) return answer.status();
  return DecodeOpenReply(answer.value());
}

Status TcpLane::Notify(std::string_view data, Deadline deadline) {
  const std::span body(reinterpret_cast<const uint8_t*>(data.data()), data.size());
  return Call(Message::kNotify, body, Message::kNotifyReply, deadline).status();
}

Status TcpLane::Execute(Op op, uint64_t segment_id, std::span<const Piece> pieces,
                        const BatchOptions& options) {
  return TcpBatch(socket_, op, segment_id, pieces, last_request_id_).Run(options);
}

bool TcpLane::IsQuiet() const {
  pollfd one{socket_.get(), POLLIN | POLLRDHUP, 0};
  return poll(&one, 1, 0) == 0;
}

void TcpLane::Interrupt() const { shutdown(socket_.get(), SHUT_RDWR); }

// One question and its answer.
Result<Bytes> TcpLane::Call(Message type, std::span<const uint8_t> body, Message expected,
                            Deadline deadline) {
  const uint64_t request_id = ++last_request_id_;
  const Bytes question = Frame(type, request_id, body);
  MC_RETURN_IF_ERROR(SendAll(socket_, question.data(), question.size(), deadline));
  FrameHeaderBytes bytes;
  MC_RETURN_IF_ERROR(RecvAll(socket_, bytes.data(), bytes.size(), deadline));
  auto header = DecodeFrameHeader(bytes);
  if (!header.ok()) return header.status();
  if (header.value().body_bytes > kControlBytes || header.value().request_id != request_id) {
    return Status(Code::kWire, "an answer that fits no question");
  }
  Bytes answer(header.value().body_bytes);
  MC_RETURN_IF_ERROR(RecvAll(socket_, answer.data(), answer.size(), deadline));
  const auto answered = static_cast<Message>(header.value().type);
  if (answered == Message::kError) return DecodeError(answer);
  if (answered != expected) return Status(Code::kWire, "an answer of another type");
  return answer;
}

}  // namespace mooncake
