// Connection: one framed, non-blocking connection of a server, with bounded buffers.
//
// Thread safety: none; belongs to the server's loop.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "wire/frame.h"

namespace mooncake::store {

class Connection {
 public:
  // Nothing more is read while this much waits to be sent.
  static constexpr size_t kOutputMax = 4u << 20;
  // Taken from the kernel at a time, so that one connection does not hold up the others.
  static constexpr size_t kReadBytes = 64u << 10;

  struct Frame {
    FrameHeader header;
    std::span<const uint8_t> body;  // until the next call
  };

  explicit Connection(Fd socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }

  // Reads what has arrived, a bounded amount. False: the peer is gone.
  bool Read();
  // The next whole frame, or nothing yet. kWire when the peer does not speak our protocol.
  Result<std::optional<Frame>> Next();
  void Send(uint8_t type, uint64_t request_id, std::span<const uint8_t> body);
  // Sends what the kernel takes. False: the peer is gone.
  bool Flush();

  bool has_output() const { return sent_ < out_.size(); }
  bool is_clogged() const { return out_.size() - sent_ > kOutputMax; }

 private:
  Fd socket_;
  std::vector<uint8_t> in_, out_;
  size_t taken_ = 0, sent_ = 0;
};

}  // namespace mooncake::store
