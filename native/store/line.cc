#include "store/line.h"

#include <poll.h>

#include "base/socket.h"
#include "base/spin.h"
#include "wire/frame.h"

namespace mooncake::store {
namespace {

constexpr size_t kKeptQuestionBytes = 1u << 20;

}  // namespace

void Line::Begin(MessageType type, bool is_answered) {
  last_id_ += asked_;
  asked_ = 0;
  out_.clear();
  type_ = static_cast<uint8_t>(type);
  is_answered_ = is_answered;
}

Status Line::End(size_t begin) {
  const size_t body_bytes = out_.size() - begin - kFrameHeaderBytes;
  if (body_bytes > kFrameBodyMax) {
    return {Code::kInvalidArgument, "a request of " + std::to_string(body_bytes) +
                                        " bytes; at most 64 MiB fit one, make the batch smaller"};
  }
  if (is_answered_) ++asked_;
  EndFrame(out_, begin, type_, is_answered_ ? last_id_ + asked_ : 0);
  return Status::Ok();
}

void Line::Connect(Fd socket) {
  socket_ = std::move(socket);
  in_.Clear();
}

Fd Line::Disconnect() { return std::move(socket_); }

void Line::Shrink() {
  if (out_.capacity() > kKeptQuestionBytes) out_ = {};
}

Status Line::Exchange(Deadline deadline, const Take& take) {
  sent_ = answered_ = 0;
  Spin spin;
  while (!is_done()) {
    const auto sent = Send();
    if (!sent.ok()) return sent.status();
    const auto received = Receive(take);
    if (!received.ok()) return received.status();
    if (sent.value() || received.value()) {
      spin.Restart();
    } else if (!spin.Again()) {
      const short wanted = POLLIN | (sent_ < out_.size() ? POLLOUT : 0);
      const auto ready = WaitFor(socket_, wanted, deadline);
      if (!ready.ok()) return ready.status();
    }
  }
  return Status::Ok();
}

// Whether anything moved, as for Receive.
Result<bool> Line::Send() {
  if (sent_ == out_.size()) return false;
  const auto sent = SendSome(socket_, std::span(out_).subspan(sent_));
  if (!sent.ok()) return sent.status();
  sent_ += sent.value();
  return sent.value() > 0;
}

Result<bool> Line::Receive(const Take& take) {
  if (answered_ == asked_) return false;
  const auto got = RecvSome(socket_, in_.Room());
  if (!got.ok()) return got.status();
  in_.Add(got.value());
  if (got.value() > 0) MC_RETURN_IF_ERROR(TakeAnswers(take));
  return got.value() > 0;
}

Status Line::TakeAnswers(const Take& take) {
  for (;;) {
    const auto next = in_.Next();
    if (!next.ok()) return next.status();
    if (!next.value()) return Status::Ok();
    MC_RETURN_IF_ERROR(CheckAnswer(*next.value()));
    MC_RETURN_IF_ERROR(take(answered_, next.value()->body));
    ++answered_;
  }
}

Status Line::CheckAnswer(const FrameBuffer::Frame& answer) const {
  if (answer.header.type == kError) {
    const auto error = Decode<ErrorBody>(answer.body);
    if (!error.ok()) return error.status();
    return {static_cast<Code>(error.value().code), "master: " + error.value().message};
  }
  const bool is_expected = answered_ < asked_ && answer.header.type == (type_ | kAnswer) &&
                           answer.header.request_id == last_id_ + answered_ + 1;
  if (is_expected) return Status::Ok();
  return {Code::kWire, "an answer to another question; this is no master of this version"};
}

}  // namespace mooncake::store
