#include "transfer/tcp_connection.h"

#include <sys/epoll.h>

#include <atomic>
#include <cerrno>
#include <string>

namespace mooncake {
namespace {

// System calls for one connection before the loop turns to the next.
constexpr int kCallsPerTurn = 16;
constexpr size_t kDiscardBytes = 64 << 10;

Status Unexpected(uint8_t type) {
  return Status(Code::kWire, "unexpected message type " + std::to_string(type));
}

bool IsControl(Message type) {
  return type == Message::kOpen || type == Message::kNotify || type == Message::kEcho ||
         type == Message::kCloseLane;
}

}  // namespace

TcpConnection::TcpConnection(Fd socket, TcpShard& shard)
    : socket_(std::move(socket)), shard_(shard), owner_(shard.owner()) {
  ExpectHeader();
}

void TcpConnection::Start() {
  interest_ = EPOLLIN;
  token_ = shard_.loop().Watch(socket_, interest_, shared_from_this());
}

void TcpConnection::Close() {
  if (!socket_.valid()) return;
  shard_.loop().Forget(token_);
  shutdown(socket_.get(), SHUT_RDWR);  // a forked child may hold the descriptor too
  socket_.Reset();
  segment_.reset();
  shard_.Drop(*this);
}

void TcpConnection::OnReady(uint64_t, uint32_t) {
  if (stage_ == Stage::kClosingLane) return Close();  // nothing else is watched for
  for (int call = 0; call < kCallsPerTurn; ++call) {
    const ssize_t count = out_.done() ? in_.Receive(socket_) : out_.Send(socket_);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count <= 0 || !Move()) return Close();
    if (stage_ == Stage::kClosingLane) break;  // what was sent behind it waits
  }
  UpdateInterest();
}

// After some bytes have moved: goes from stage to stage as far as they reach. False: close.
bool TcpConnection::Move() {
  if (!out_.done()) return true;
  if (is_closing_) return false;
  if (stage_ == Stage::kHeader) segment_.reset();  // the answer is out
  while (in_.done() && out_.done() && stage_ != Stage::kClosingLane) {
    if (!Step().ok()) return false;
  }
  return true;
}

void TcpConnection::UpdateInterest() {
  const uint32_t wanted = out_.done() ? EPOLLIN : EPOLLOUT;
  const uint32_t interest = stage_ == Stage::kClosingLane ? 0 : wanted;
  if (interest == interest_) return;
  interest_ = interest;
  shard_.loop().Change(token_, interest);
}

Status TcpConnection::Step() {
  switch (stage_) {
    case Stage::kHeader:
      return OnHeader();
    case Stage::kControl:
      return OnControl();
    case Stage::kPrefix:
      return OnPrefix();
    case Stage::kPieces:
      return OnPieces();
    case Stage::kPayload:
      std::atomic_thread_fence(std::memory_order_release);
      Reply(Message::kWriteReply, {});
      return Status::Ok();
    case Stage::kDiscard:
      return OnDiscarded();
    case Stage::kClosingLane:
      break;
  }
  return Unexpected(header_.type);
}

Status TcpConnection::OnHeader() {
  auto header = DecodeFrameHeader(std::span<const uint8_t, kFrameHeaderBytes>(buffer_));
  if (!header.ok()) return header.status();
  header_ = header.value();
  const auto type = static_cast<Message>(header_.type);
  const bool is_greeted = name_.peer_id != 0;
  const bool is_control = is_greeted ? IsControl(type) : type == Message::kHello;
  const uint32_t longest = type == Message::kEcho ? kEchoBytes : kControlBytes;
  if (is_control && header_.body_bytes <= longest) {
    Expect(Stage::kControl, header_.body_bytes);
    return Status::Ok();
  }
  const bool is_batch = type == Message::kRead || type == Message::kWrite;
  if (!is_greeted || !is_batch || header_.body_bytes < kBatchPrefixBytes) {
    return Unexpected(header_.type);
  }
  Expect(Stage::kPrefix, kBatchPrefixBytes);
  return Status::Ok();
}

Status TcpConnection::OnControl() {
  switch (static_cast<Message>(header_.type)) {
    case Message::kHello:
      return OnHello();
    case Message::kNotify:
      return OnNotify();
    case Message::kEcho:
      Reply(Message::kEchoReply, buffer_);
      return Status::Ok();
    case Message::kCloseLane:
      return OnCloseLane();
    default:
      return OnOpen();
  }
}

Status TcpConnection::OnHello() {
  auto hello = DecodeHello(buffer_);
  if (!hello.ok()) return hello.status();
  const Status admitted = owner_.Admit(hello.value());
  if (admitted.ok()) {
    name_ = {hello.value().peer_id, hello.value().lane_id};
    Reply(Message::kHelloReply, Encode(owner_.greeting));
  } else {
    Reply(Message::kError, EncodeError(admitted));
    is_closing_ = true;
  }
  return Status::Ok();
}

Status TcpConnection::OnOpen() {
  auto ref = DecodeSegmentRef(buffer_);
  if (!ref.ok()) return ref.status();
  const auto segment = owner_.Find(ref.value());
  if (segment.ok()) {
    Reply(Message::kOpenReply, Encode(Describe(*segment.value())));
  } else {
    Reply(Message::kError, EncodeError(segment.status()));
  }
  return Status::Ok();
}

Status TcpConnection::OnNotify() {
  auto note = DecodeNote(buffer_);
  if (!note.ok()) return note.status();
  auto& [number, data] = note.value();
  const Status pushed = owner_.notifications.Push({name_.peer_id, std::move(data)}, number);
  if (pushed.ok()) {
    Reply(Message::kNotifyReply, {});
  } else {
    Reply(Message::kError, EncodeError(pushed));
  }
  return Status::Ok();
}

Status TcpConnection::OnCloseLane() {
  auto lane_id = DecodeNumber(buffer_);
  if (!lane_id.ok()) return lane_id.status();
  Expect(Stage::kClosingLane, 0);
  const std::shared_ptr<Loop> loop = shard_.loop().shared_from_this();
  const auto done = [loop, weak = weak_from_this()] {
    loop->Post([weak] {
      if (const auto connection = weak.lock()) connection->OnLaneClosed();
    });
  };
  shard_.CloseElsewhere({name_.peer_id, lane_id.value()}, done);
  return Status::Ok();
}

void TcpConnection::OnLaneClosed() {
  if (!socket_.valid()) return;
  Reply(Message::kLaneClosed, {});
  UpdateInterest();
}

Status TcpConnection::OnPrefix() {
  auto prefix = DecodeBatchPrefix(buffer_);
  if (!prefix.ok()) return prefix.status();
  prefix_ = prefix.value();
  const size_t bytes = size_t{kPieceBytes} * prefix_.count;
  if (header_.body_bytes < kBatchPrefixBytes + bytes) return Unexpected(header_.type);
  Expect(Stage::kPieces, bytes);
  return Status::Ok();
}

Status TcpConnection::OnPieces() {
  auto pieces = DecodePieces(buffer_);
  if (!pieces.ok()) return pieces.status();
  const bool is_write = static_cast<Message>(header_.type) == Message::kWrite;
  const uint64_t payload = is_write ? TotalBytes(pieces.value()) : 0;
  if (header_.body_bytes != kBatchPrefixBytes + buffer_.size() + payload) {
    return Unexpected(header_.type);
  }
  const Status started = StartPayload(pieces.value());
  if (started.ok()) return Status::Ok();
  refusal_ = started;
  discard_bytes_ = payload;
  ExpectDiscard();
  return Status::Ok();
}

// Aims the payload at the segment, or says why not.
Status TcpConnection::StartPayload(std::span<const Piece> pieces) {
  auto found = owner_.Find({prefix_.segment_id, ""});
  if (!found.ok()) return found.status();
  std::shared_ptr<Segment> segment = std::move(found).value();
  for (const Piece& piece : pieces) {
    if (!segment->Contains(piece.offset, piece.length)) {
      return Status(Code::kInvalidArgument, "a piece lies outside the segment");
    }
  }
  const bool is_write = static_cast<Message>(header_.type) == Message::kWrite;
  if (is_write && segment->is_read_only()) return ReadOnly(segment->id());
  if (is_write) {
    Expect(Stage::kPayload, 0);
  } else {
    Reply(Message::kReadReply, {}, TotalBytes(pieces));
  }
  Scatter& payload = is_write ? in_ : out_;
  for (const Piece& piece : pieces) payload.Add(segment->data() + piece.offset, piece.length);
  segment_ = std::move(segment);
  return Status::Ok();
}

void TcpConnection::ExpectDiscard() {
  const size_t bytes = std::min<uint64_t>(discard_bytes_, kDiscardBytes);
  discard_bytes_ -= bytes;
  Expect(Stage::kDiscard, bytes);
}

Status TcpConnection::OnDiscarded() {
  if (discard_bytes_ > 0) {
    ExpectDiscard();
  } else {
    Reply(Message::kError, EncodeError(refusal_));
  }
  return Status::Ok();
}

void TcpConnection::Expect(Stage stage, size_t bytes) {
  stage_ = stage;
  buffer_.resize(bytes);
  in_.Clear();
  in_.Add(buffer_.data(), bytes);
}

void TcpConnection::ExpectHeader() { Expect(Stage::kHeader, kFrameHeaderBytes); }

// Ends the request: its answer goes out, then the next one is awaited.
void TcpConnection::Reply(Message type, std::span<const uint8_t> body, uint64_t payload_bytes) {
  reply_ = Frame(type, header_.request_id, body, payload_bytes);
  out_.Clear();
  out_.Add(reply_.data(), reply_.size());
  ExpectHeader();
}

}  // namespace mooncake
