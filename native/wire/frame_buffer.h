// FrameBuffer: bytes that a connection has received, cut into frames where they lie.
//
// Thread safety: none.
// Invariants: memory follows what has arrived, never what a header announces; it is not cleared
// before it is received into, and given back after a message that was large.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>

#include "base/status.h"
#include "wire/frame.h"

namespace mooncake {

class FrameBuffer {
 public:
  // Received at a time at most, so that one connection does not hold up the others.
  static constexpr size_t kReadBytes = 64u << 10;

  struct Frame {
    FrameHeader header;
    std::span<const uint8_t> body;  // until the next call of Room
  };

  // Where to receive next: never empty, at most kReadBytes.
  std::span<uint8_t> Room();
  // The first `bytes` of the last Room were received.
  void Add(size_t bytes) { end_ += bytes; }
  // The next whole frame, or nothing yet. kWire when the peer does not speak our protocol.
  Result<std::optional<Frame>> Next();
  void Clear() { begin_ = end_ = 0; }

  bool is_empty() const { return begin_ == end_; }

 private:
  void MoveTo(size_t capacity);

  std::unique_ptr<uint8_t[]> bytes_;
  size_t capacity_ = 0, begin_ = 0, end_ = 0;
};

}  // namespace mooncake
