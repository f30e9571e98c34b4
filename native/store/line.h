// Line: a connection to a master, and the questions and answers of one caller on it. Its buffers
// are used again, so that a question allocates nothing.
//
// Thread safety: none; one caller at a time.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/deadline.h"
#include "base/fd.h"
#include "base/status.h"
#include "store/codec.h"
#include "wire/frame_buffer.h"

namespace mooncake::store {

class Line {
 public:
  // Reads the answer to question `index`; its body is valid during the call only.
  using Take = std::function<Status(size_t index, std::span<const uint8_t> body)>;

  Line() = default;

  // Forgets earlier questions; those that are added next have this type. Without an answer Exchange
  // only sends them.
  void Begin(MessageType type, bool is_answered);
  // kInvalidArgument when the question does not fit a frame.
  template <typename Request>
  Status Add(const Request& request) {
    const size_t begin = BeginFrame(out_);
    Encode(request, out_);
    return End(begin);
  }

  bool is_connected() const { return socket_.valid(); }
  void Connect(Fd socket);
  Fd Disconnect();

  // Sends the questions and hands over their answers in order, receiving while it sends. After an
  // error the connection is not to be used again, its questions may be asked on another. What the
  // master refused is its own error; kPeerUnreachable, kTimeout, kWire.
  Status Exchange(Deadline deadline, const Take& take);

  // Gives back the memory of questions that were large.
  void Shrink();

 private:
  Status End(size_t begin);
  Result<bool> Send();
  Result<bool> Receive(const Take& take);
  Status TakeAnswers(const Take& take);
  Status CheckAnswer(const FrameBuffer::Frame& answer) const;
  bool is_done() const { return sent_ == out_.size() && answered_ == asked_; }

  Fd socket_;
  FrameBuffer in_;
  std::vector<uint8_t> out_;
  uint8_t type_ = 0;
  bool is_answered_ = true;
  uint64_t last_id_ = 0;  // of the last question before these
  size_t asked_ = 0, answered_ = 0;
  size_t sent_ = 0;
};

}  // namespace mooncake::store
