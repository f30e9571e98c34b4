#include "transfer/transports/tcp_batch.h"

#include <poll.h>

#include <cerrno>
#include <cstring>
#include <string>

#include "base/socket.h"

namespace mooncake {
namespace {

void* Memory(const Piece& piece) { return reinterpret_cast<void*>(piece.address); }

// True: some bytes moved. False: the socket is not ready.
Result<bool> Moved(ssize_t count, const char* what) {
  if (count > 0) return true;
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return false;
  return Status(Code::kPeerUnreachable,
                std::string(what) + ": " +
                    (count == 0 ? "the peer closed the connection" : std::strerror(errno)));
}

}  // namespace

TcpBatch::TcpBatch(const Fd& socket, Op op, uint64_t segment_id, std::span<const Piece> pieces,
                   uint64_t& request_id)
    : socket_(socket),
      op_(op),
      segment_id_(segment_id),
      request_id_(request_id),
      answered_id_(request_id),
      to_send_(pieces),
      to_receive_(pieces) {
  ExpectHeader();
}

Status TcpBatch::Run(const BatchOptions& options) {
  while (!ended()) {
    MC_RETURN_IF_ERROR(options.CheckTime());
    auto sent = CanSend() ? Send() : Result<bool>(false);
    if (!sent.ok()) return sent.status();
    auto received = unanswered_ > 0 ? Receive() : Result<bool>(false);
    if (!received.ok()) return received.status();
    if (sent.value() || received.value()) continue;
    const short events = CanSend() ? POLLIN | POLLOUT : POLLIN;
    const double limit_s = options.cancel != nullptr ? 0.01 : options.deadline.seconds_left();
    auto ready = WaitFor(socket_, events, Deadline::After(limit_s));
    if (!ready.ok() && ready.status().code() != Code::kTimeout) return ready.status();
  }
  return Status::Ok();
}

Result<bool> TcpBatch::Send() {
  if (out_.done()) StartRequest();
  return Moved(out_.Send(socket_), "send");
}

void TcpBatch::StartRequest() {
  const bool is_write = op_ == Op::kWrite;
  to_send_.Next(request_);
  head_ = EncodeBatch(is_write ? Message::kWrite : Message::kRead, ++request_id_, segment_id_,
                      request_);
  out_.Clear();
  out_.Add(head_.data(), head_.size());
  if (is_write) {
    for (const Piece& piece : request_) out_.Add(Memory(piece), piece.length);
  }
  ++unanswered_;
}

Result<bool> TcpBatch::Receive() {
  auto moved = Moved(in_.Receive(socket_), "receive");
  if (!moved.ok() || !moved.value() || !in_.done()) return moved;
  MC_RETURN_IF_ERROR(OnReceived());
  return true;
}

Status TcpBatch::OnReceived() {
  if (stage_ == Stage::kHeader) return OnHeader();
  if (stage_ == Stage::kError) return DecodeError(error_);
  --unanswered_;
  ExpectHeader();
  return Status::Ok();
}

Status TcpBatch::OnHeader() {
  auto decoded = DecodeFrameHeader(header_);
  if (!decoded.ok()) return decoded.status();
  const FrameHeader& header = decoded.value();
  const auto type = static_cast<Message>(header.type);
  in_.Clear();
  if (type == Message::kError && header.body_bytes > 0 && header.body_bytes <= kControlBytes) {
    stage_ = Stage::kError;
    error_.resize(header.body_bytes);
    in_.Add(error_.data(), error_.size());
    return Status::Ok();
  }
  to_receive_.Next(answer_);
  const Message expected = op_ == Op::kRead ? Message::kReadReply : Message::kWriteReply;
  const uint64_t payload = op_ == Op::kRead ? TotalBytes(answer_) : 0;
  if (type != expected || header.body_bytes != payload || header.request_id != ++answered_id_) {
    return Status(Code::kWire, "an answer that fits no request");
  }
  if (op_ == Op::kWrite) {
    --unanswered_;
    ExpectHeader();
    return Status::Ok();
  }
  stage_ = Stage::kPayload;
  for (const Piece& piece : answer_) in_.Add(Memory(piece), piece.length);
  return Status::Ok();
}

void TcpBatch::ExpectHeader() {
  stage_ = Stage::kHeader;
  in_.Clear();
  in_.Add(header_.data(), header_.size());
}

}  // namespace mooncake
