#include "transfer/transports/tcp_stream.h"

#include <linux/sockios.h>
#include <poll.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>

namespace mooncake {
namespace {

using Kind = TcpStream::Request::Kind;

void* Memory(const Piece& piece) { return reinterpret_cast<void*>(piece.address); }

bool MustWait(ssize_t count) { return count < 0 && (errno == EAGAIN || errno == EINTR); }

Status Broken(ssize_t count, const char* what) {
  return Status(Code::kPeerUnreachable,
                std::string(what) + ": " +
                    (count == 0 ? "the peer closed the connection" : std::strerror(errno)));
}

Status FitsNoRequest() { return Status(Code::kWire, "an answer that fits no request"); }

}  // namespace

TcpStream::TcpStream(std::unique_ptr<TcpLane> lane, const Batch& batch)
    : lane_(std::move(lane)), batch_(batch) {
  ExpectHeader();
  if (!lane_->is_greeted()) Ask({.kind = Kind::kHello});
}

const TcpStream::Request* TcpStream::oldest_slice() const {
  const auto found = std::find_if(requests_.begin(), requests_.end(), [](const Request& request) {
    return request.kind == Kind::kSlice;
  });
  return found == requests_.end() ? nullptr : &*found;
}

short TcpStream::events() const {
  const bool sends = wants_to_send() && !can_send_;
  const bool receives = !requests_.empty() && !can_receive_;
  return static_cast<short>((sends ? POLLOUT : 0) | (receives ? POLLIN : 0));
}

void TcpStream::OnPolled(short revents) {
  const short broken = POLLERR | POLLHUP | POLLNVAL;
  can_send_ = can_send_ || (revents & (POLLOUT | broken)) != 0;
  can_receive_ = can_receive_ || (revents & (POLLIN | broken)) != 0;
}

Result<bool> TcpStream::Pump() {
  bool has_moved = false;
  if (can_send_ && wants_to_send()) {
    auto sent = Send();
    if (!sent.ok()) return sent;
    has_moved = sent.value();
  }
  if (can_receive_ && !requests_.empty()) {
    auto received = Receive();
    if (!received.ok()) return received;
    has_moved = has_moved || received.value();
  }
  return has_moved;
}

// Nothing but the hello is said before that was answered.
bool TcpStream::CanStart() const {
  if (sent_ == requests_.size()) return false;
  return lane_->is_greeted() || requests_[sent_].kind == Kind::kHello;
}

Result<bool> TcpStream::Send() {
  if (out_.done()) StartRequest();
  const ssize_t count = out_.Send(lane_->socket());
  can_send_ = !MustWait(count);
  if (!can_send_) return false;
  if (count <= 0) return Broken(count, "send");
  const auto sent = static_cast<uint64_t>(count);
  out_bytes_ += sent;
  if (sent > head_left_bytes_) requests_[sent_ - 1].has_payload_left = true;
  can_send_ = out_.done();  // else the kernel took what it could
  head_left_bytes_ -= std::min(head_left_bytes_, sent);
  return true;
}

void TcpStream::StartRequest() {
  Request& request = requests_[sent_++];
  request.request_id = lane_->NextRequestId();
  head_ = EncodeHead(request);
  head_left_bytes_ = head_.size();
  out_.Clear();
  out_.Add(head_.data(), head_.size());
  if (request.kind != Kind::kSlice || batch_.op == Op::kRead) return;
  for (const Piece& piece : pieces_) out_.Add(Memory(piece), piece.length);
}

Bytes TcpStream::EncodeHead(const Request& request) {
  switch (request.kind) {
    case Kind::kHello:
      return Frame(Message::kHello, request.request_id, Encode(lane_->Named(batch_.hello)));
    case Kind::kCloseLane:
      return Frame(Message::kCloseLane, request.request_id, EncodeNumber(request.lane_id));
    case Kind::kSlice:
      break;
  }
  batch_.slicer.Cut(request.stretch, pieces_);
  const Message type = batch_.op == Op::kRead ? Message::kRead : Message::kWrite;
  return EncodeBatch(type, request.request_id, batch_.segment_id, pieces_);
}

Result<bool> TcpStream::Receive() {
  const ssize_t count = in_.Receive(lane_->socket());
  can_receive_ = !MustWait(count);
  if (!can_receive_) return false;
  if (count <= 0) return Broken(count, "receive");
  in_bytes_ += static_cast<uint64_t>(count);
  can_receive_ = in_.done();  // else there was no more
  if (in_.done()) MC_RETURN_IF_ERROR(OnReceived());
  return true;
}

Status TcpStream::OnReceived() {
  switch (stage_) {
    case Stage::kHeader:
      return OnHeader();
    case Stage::kControl:
      return OnControl();
    case Stage::kPayload:
      break;
  }
  OnAnswered();
  return Status::Ok();
}

Status TcpStream::OnHeader() {
  auto decoded = DecodeFrameHeader(header_bytes_);
  if (!decoded.ok()) return decoded.status();
  header_ = decoded.value();
  const auto type = static_cast<Message>(header_.type);
  if (!awaits_answer() || header_.request_id != requests_.front().request_id) {
    return FitsNoRequest();
  }
  const Request& asked = requests_.front();
  in_.Clear();
  if (asked.kind != Kind::kSlice || type == Message::kError) {
    if (header_.body_bytes > kControlBytes) return FitsNoRequest();
    stage_ = Stage::kControl;
    control_.resize(header_.body_bytes);
    in_.Add(control_.data(), control_.size());
    return in_.done() ? OnControl() : Status::Ok();
  }
  const bool is_read = batch_.op == Op::kRead;
  const Message expected = is_read ? Message::kReadReply : Message::kWriteReply;
  const uint64_t payload = is_read ? asked.stretch.bytes : 0;
  if (type != expected || header_.body_bytes != payload) return FitsNoRequest();
  stage_ = Stage::kPayload;
  if (!is_read) {
    OnAnswered();
    return Status::Ok();
  }
  batch_.slicer.Cut(asked.stretch, pieces_);
  for (const Piece& piece : pieces_) in_.Add(Memory(piece), piece.length);
  return Status::Ok();
}

Status TcpStream::OnControl() {
  const auto type = static_cast<Message>(header_.type);
  if (type == Message::kError) {
    requests_.front().has_payload_left = false;  // refused: the peer has dropped what came with it
    return DecodeError(control_);
  }
  if (requests_.front().kind == Kind::kHello) {
    if (type != Message::kHelloReply) return FitsNoRequest();
    const Status greeted = lane_->OnGreeted(batch_.hello, control_).status();
    if (!greeted.ok()) return greeted;
  } else if (type != Message::kLaneClosed || !control_.empty()) {
    return FitsNoRequest();
  }
  OnAnswered();
  return Status::Ok();
}

void TcpStream::OnAnswered() {
  answered_.push_back(requests_.front());
  requests_.pop_front();
  --sent_;
  ExpectHeader();
}

void TcpStream::ExpectHeader() {
  stage_ = Stage::kHeader;
  in_.Clear();
  in_.Add(header_bytes_.data(), header_bytes_.size());
}

std::vector<TcpStream::Request> TcpStream::TakeAnswered() { return std::exchange(answered_, {}); }

std::deque<TcpStream::Request> TcpStream::TakeUnanswered() {
  sent_ = 0;
  return std::exchange(requests_, {});
}

bool TcpStream::HasProgressed() {
  int queued = 0;
  if (ioctl(lane_->socket().get(), SIOCOUTQ, &queued) != 0) return false;
  const uint64_t moved = in_bytes_ + out_bytes_ - std::min<uint64_t>(out_bytes_, queued);
  return std::exchange(moved_bytes_, moved) < moved;
}

}  // namespace mooncake
