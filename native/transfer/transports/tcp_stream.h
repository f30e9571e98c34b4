// TcpStream: what one batch asks over one lane. Requests are sent while answers to earlier ones are
// received, so a batch of thousands of pieces is not thousands of round trips, and neither side
// waits for the other with full buffers.
//
// Thread safety: one thread. The batch and the memory under its pieces are the caller's.
// Invariants: local memory is touched only inside Pump.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "base/status.h"
#include "transfer/protocol.h"
#include "transfer/scatter.h"
#include "transfer/scheduler.h"
#include "transfer/slicer.h"
#include "transfer/transports/tcp_lane.h"
#include "transfer/types.h"

namespace mooncake {

class TcpStream {
 public:
  struct Batch {
    Op op;
    uint64_t segment_id;
    const Slicer& slicer;
    const Hello& hello;
  };
  struct Request {
    enum class Kind { kHello, kSlice, kCloseLane };
    Kind kind = Kind::kHello;
    Stretch stretch = {};               // of a slice
    PathScheduler::Slice booking = {};  // likewise
    uint64_t lane_id = 0;               // to be closed
    uint64_t request_id = 0;            // once it is being sent
    bool has_payload_left = false;      // some byte of a write was handed to the kernel
  };

  // Greets first if need be.
  TcpStream(std::unique_ptr<TcpLane> lane, const Batch& batch);

  // Queues a slice or the closing of a lane.
  void Ask(const Request& request) { requests_.push_back(request); }
  bool has_room() const { return requests_.size() < kWindow; }
  bool is_idle() const { return requests_.empty(); }
  const Request* oldest_slice() const;  // null: none
  bool is_greeted() const { return lane_->is_greeted(); }

  // What to poll the socket for, and what poll() said.
  short events() const;
  void OnPolled(short revents);

  // Sends and receives what the socket takes and gives. True: bytes moved. Never blocks.
  // kPeerUnreachable: the connection is dead. What the peer says, and kWire, end the batch.
  Result<bool> Pump();

  // Those that were answered since the last call.
  std::vector<Request> TakeAnswered();
  // All others; none is left then. To be called once the stream is of no use any more.
  std::deque<Request> TakeUnanswered();
  std::unique_ptr<TcpLane> TakeLane() { return std::move(lane_); }
  const TcpLane& lane() const { return *lane_; }

  // True: the peer has sent or acknowledged bytes since the last call.
  bool HasProgressed();

 private:
  enum class Stage { kHeader, kControl, kPayload };

  static constexpr size_t kWindow = 32;  // requests under way

  bool CanStart() const;
  bool wants_to_send() const { return !out_.done() || CanStart(); }
  bool awaits_answer() const { return sent_ > 1 || (sent_ == 1 && out_.done()); }
  Result<bool> Send();
  Result<bool> Receive();
  void StartRequest();
  Bytes EncodeHead(const Request& request);
  Status OnReceived();
  Status OnHeader();
  Status OnControl();
  void OnAnswered();
  void ExpectHeader();

  std::unique_ptr<TcpLane> lane_;
  const Batch batch_;
  std::deque<Request> requests_;  // the first `sent_` are sent, the last of them perhaps in part
  size_t sent_ = 0;
  std::vector<Request> answered_;
  bool can_send_ = true;
  bool can_receive_ = false;

  std::vector<Piece> pieces_;
  Bytes head_;  // of the request that is being sent
  uint64_t head_left_bytes_ = 0;
  Scatter out_;
  uint64_t out_bytes_ = 0;  // handed to the kernel so far
  uint64_t in_bytes_ = 0;
  uint64_t moved_bytes_ = 0;  // either way, as last looked at

  Stage stage_ = Stage::kHeader;
  FrameHeaderBytes header_bytes_;
  FrameHeader header_;
  Bytes control_;
  Scatter in_;
};

}  // namespace mooncake
