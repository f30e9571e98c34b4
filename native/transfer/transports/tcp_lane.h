// TcpLane: one TCP connection to a peer, used by one thread at a time.
//
// Thread safety: Interrupt by any thread; all else by the one that holds the lane.
// Invariants: nothing but the hello is said on a lane that is not greeted. After any error but
// those of Open's answer the lane is not to be used again. What was sent and not received is
// dropped by both ends when the lane is closed here.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

#include "base/fd.h"
#include "base/patience.h"
#include "base/socket.h"
#include "base/status.h"
#include "transfer/protocol.h"
#include "transfer/transports/tcp_route.h"
#include "transfer/types.h"

namespace mooncake {

class TcpLane {
 public:
  struct Greeted {
    std::unique_ptr<TcpLane> lane;
    HelloReply reply;
  };
  // Connects and greets. kFenced and kWrongPeer are what the peer said; kPeerUnreachable, kTimeout,
  // kCancelled, kWire.
  static Result<Greeted> Connect(const Address& address, const Hello& hello, Patience patience);

  // Begins to connect to a numeric address.
  static Result<std::unique_ptr<TcpLane>> Start(const Route& route);
  // Waits until it is connected, and greets.
  Result<HelloReply> Greet(const Hello& hello, Patience patience);

  ~TcpLane();

  const Fd& socket() const { return socket_; }
  uint64_t id() const { return id_; }
  uint64_t NextRequestId() { return ++last_request_id_; }
  // The hello as it is said on this lane.
  Hello Named(Hello hello) const;
  // Takes the answer to it; kWire when it is not one of the engine that is expected.
  Result<HelloReply> OnGreeted(const Hello& hello, std::span<const uint8_t> answer);
  bool is_greeted() const { return is_greeted_; }

  // What the segment is like; kNotFound leaves the lane usable.
  Result<OpenReply> Open(const SegmentRef& ref, Patience patience);
  // kNotNotified leaves the lane usable.
  Status Notify(const NumberedNote& note, Patience patience);
  // What came back; at most kEchoBytes.
  Result<Bytes> Echo(std::span<const uint8_t> bytes, Patience patience);
  // Ok: another lane of this engine moves no byte at the peer any more, whatever it was sent.
  Status CloseLane(uint64_t lane_id, Patience patience);

  // True while the peer has neither closed the connection nor sent anything unasked.
  bool IsQuiet() const;
  // Makes the thread that uses the lane fail soon.
  void Interrupt() const;

 private:
  explicit TcpLane(Fd socket);
  Result<Bytes> Call(Message type, std::span<const uint8_t> body, Message expected,
                     Patience patience, uint32_t longest = kControlBytes);

  Fd socket_;
  const uint64_t id_;
  uint64_t last_request_id_ = 0;
  bool is_greeted_ = false;
};

}  // namespace mooncake
