// Connection: one framed, non-blocking connection of a server, with bounded buffers.
//
// Thread safety: none; belongs to the server's loop.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "base/fd.h"
#include "base/status.h"
#include "wire/frame_buffer.h"

namespace mooncake::store {

class Connection {
 public:
  // Nothing more is read while this much waits to be sent.
  static constexpr size_t kOutputMax = 4u << 20;

  explicit Connection(Fd socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }

  // Reads what has arrived, a bounded amount. False: the peer is gone.
  bool Read();
  // The next whole frame, or nothing yet. kWire when the peer does not speak our protocol.
  Result<std::optional<FrameBuffer::Frame>> Next() { return in_.Next(); }
  // What is sent next: frames are appended.
  std::vector<uint8_t>& output() { return out_; }
  // Sends what the kernel takes. False: the peer is gone.
  bool Flush();

  bool has_output() const { return sent_ < out_.size(); }
  bool is_clogged() const { return out_.size() - sent_ > kOutputMax; }

 private:
  Fd socket_;
  FrameBuffer in_;
  std::vector<uint8_t> out_;
  size_t sent_ = 0;
};

}  // namespace mooncake::store
