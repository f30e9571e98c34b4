// TcpConnection: the owner's end of one TCP connection, a non-blocking state machine.
//
// Payload is received straight into the segment and sent straight from it. Whatever is not the
// protocol closes this connection and touches nothing else.
//
// Thread safety: the thread of its shard's loop only.
// Invariants: while an answer is being sent nothing is received, so a peer that does not read its
// answers cannot make this grow.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>

#include "base/fd.h"
#include "transfer/loop.h"
#include "transfer/owner.h"
#include "transfer/protocol.h"
#include "transfer/scatter.h"
#include "transfer/tcp_shard.h"

namespace mooncake {

class TcpConnection : public Watcher, public std::enable_shared_from_this<TcpConnection> {
 public:
  TcpConnection(Fd socket, TcpShard& shard);

  void Start();
  void OnReady(uint64_t token, uint32_t events) override;
  // No byte moves into or out of memory after this.
  void Close();

  // Whether it is moving bytes of this segment now.
  bool IsMoving(uint64_t segment_id) const {
    return segment_ != nullptr && segment_->id() == segment_id;
  }
  const LaneName& name() const { return name_; }  // zeros before its hello

 private:
  // What `in_` is filled with; kClosingLane: nothing, until another connection is closed.
  enum class Stage { kHeader, kControl, kPrefix, kPieces, kPayload, kDiscard, kClosingLane };

  bool Move();
  Status Step();
  Status OnHeader();
  Status OnControl();
  Status OnPrefix();
  Status OnPieces();
  Status OnDiscarded();

  Status OnHello();
  Status OnOpen();
  Status OnNotify();
  Status OnCloseLane();
  void OnLaneClosed();
  Status StartPayload(std::span<const Piece> pieces);

  void Expect(Stage stage, size_t bytes);
  void ExpectHeader();
  void ExpectDiscard();
  void Reply(Message type, std::span<const uint8_t> body, uint64_t payload_bytes = 0);
  void UpdateInterest();

  Fd socket_;
  TcpShard& shard_;
  Owner& owner_;
  uint64_t token_ = 0;
  uint32_t interest_ = 0;
  LaneName name_;
  bool is_closing_ = false;  // once the answer is out

  Stage stage_ = Stage::kHeader;
  FrameHeader header_;
  BatchPrefix prefix_;
  uint64_t discard_bytes_ = 0;
  Status refusal_;                    // the answer once the request's bytes are discarded
  std::shared_ptr<Segment> segment_;  // under the payload that is moving
  Bytes buffer_;                      // under `in_`, but for payload
  Bytes reply_;                       // under `out_`, but for payload
  Scatter in_;
  Scatter out_;
};

}  // namespace mooncake
