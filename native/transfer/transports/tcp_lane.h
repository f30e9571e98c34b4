// TcpLane: one greeted TCP connection to a peer, used by one thread at a time.
//
// Thread safety: Interrupt by any thread; all else by the one that holds the lane.
// Invariants: after any error but those of Open's answer the lane is not to be used again.
#pragma once

#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/fd.h"
#include "base/socket.h"
#include "base/status.h"
#include "transfer/protocol.h"
#include "transfer/types.h"

namespace mooncake {

class TcpLane {
 public:
  struct Greeted {
    std::unique_ptr<TcpLane> lane;
    HelloReply reply;
  };
  // kFenced and kWrongPeer are what the peer said; kPeerUnreachable, kTimeout, kWire.
  static Result<Greeted> Connect(const Address& address, const Hello& hello, Deadline deadline);

  // What the segment is like; kNotFound leaves the lane usable.
  Result<OpenReply> Open(const SegmentRef& ref, Deadline deadline);
  // kNotNotified leaves the lane usable.
  Status Notify(std::string_view data, Deadline deadline);
  Status Execute(Op op, uint64_t segment_id, std::span<const Piece> pieces,
                 const BatchOptions& options);

  // True while the peer has neither closed the connection nor sent anything unasked.
  bool IsQuiet() const;
  // Makes the thread that uses the lane fail soon.
  void Interrupt() const;

 private:
  explicit TcpLane(Fd socket) : socket_(std::move(socket)) {}
  Result<Bytes> Call(Message type, std::span<const uint8_t> body, Message expected,
                     Deadline deadline);

  Fd socket_;
  uint64_t last_request_id_ = 0;
};

}  // namespace mooncake
