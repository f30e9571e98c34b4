#include "wire/frame_buffer.h"

#include <algorithm>
#include <cstring>

namespace mooncake {
namespace {

constexpr size_t kFirstBytes = 4u << 10;
constexpr size_t kKeptBytes = 1u << 20;

}  // namespace

void FrameBuffer::MoveTo(size_t capacity) {
  auto larger = std::make_unique_for_overwrite<uint8_t[]>(capacity);
  if (!is_empty()) std::memcpy(larger.get(), &bytes_[begin_], end_ - begin_);
  bytes_ = std::move(larger);
  capacity_ = capacity;
  end_ -= begin_;
  begin_ = 0;
}

// At least half is free afterwards, so every byte is moved a bounded number of times.
std::span<uint8_t> FrameBuffer::Room() {
  if (is_empty()) {
    Clear();
    if (capacity_ == 0 || capacity_ > kKeptBytes) MoveTo(kFirstBytes);
  } else if (end_ - begin_ > capacity_ / 2) {
    MoveTo(2 * capacity_);
  } else if (capacity_ - end_ < capacity_ / 2) {
    std::memmove(&bytes_[0], &bytes_[begin_], end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  return {&bytes_[end_], std::min(capacity_ - end_, kReadBytes)};
}

Result<std::optional<FrameBuffer::Frame>> FrameBuffer::Next() {
  const std::span<const uint8_t> rest(bytes_.get() + begin_, end_ - begin_);
  if (rest.size() < kFrameHeaderBytes) return std::optional<Frame>();
  const auto header = DecodeFrameHeader(rest.first<kFrameHeaderBytes>());
  if (!header.ok()) return header.status();
  const size_t whole = kFrameHeaderBytes + header.value().body_bytes;
  if (rest.size() < whole) return std::optional<Frame>();
  begin_ += whole;
  return std::optional(
      Frame{header.value(), rest.subspan(kFrameHeaderBytes, whole - kFrameHeaderBytes)});
}

}  // namespace mooncake
