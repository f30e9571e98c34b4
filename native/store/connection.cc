#include "store/connection.h"

#include <sys/socket.h>

#include <cerrno>

namespace mooncake::store {

bool Connection::Read() {
  in_.erase(in_.begin(), in_.begin() + taken_);
  taken_ = 0;
  const size_t before = in_.size();
  in_.resize(before + kReadBytes);
  const ssize_t got = recv(fd(), in_.data() + before, kReadBytes, 0);
  in_.resize(before + (got > 0 ? got : 0));
  if (got > 0) return true;
  return got < 0 && (errno == EAGAIN || errno == EINTR);
}

Result<std::optional<Connection::Frame>> Connection::Next() {
  const std::span<const uint8_t> rest = std::span(in_).subspan(taken_);
  if (rest.size() < kFrameHeaderBytes) return std::optional<Frame>();
  const auto header = DecodeFrameHeader(rest.first<kFrameHeaderBytes>());
  if (!header.ok()) return header.status();
  const size_t whole = kFrameHeaderBytes + header.value().body_bytes;
  if (rest.size() < whole) return std::optional<Frame>();
  taken_ += whole;
  return std::optional(
      Frame{header.value(), rest.subspan(kFrameHeaderBytes, whole - kFrameHeaderBytes)});
}

void Connection::Send(uint8_t type, uint64_t request_id, std::span<const uint8_t> body) {
  const auto header = EncodeFrameHeader({type, static_cast<uint32_t>(body.size()), request_id});
  out_.insert(out_.end(), header.begin(), header.end());
  out_.insert(out_.end(), body.begin(), body.end());
}

bool Connection::Flush() {
  while (has_output()) {
    const ssize_t sent = send(fd(), out_.data() + sent_, out_.size() - sent_, MSG_NOSIGNAL);
    if (sent < 0) return errno == EAGAIN || errno == EINTR;
    sent_ += sent;
  }
  out_.clear();
  sent_ = 0;
  return true;
}

}  // namespace mooncake::store
