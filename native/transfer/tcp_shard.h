// TcpShard: the TCP connections that one loop serves.
//
// Thread safety: loop() by any thread; all else on the loop's thread.
// Ownership: owns its connections; the loop may be shared with others.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <unordered_map>

#include "base/fd.h"
#include "transfer/loop.h"
#include "transfer/owner.h"

namespace mooncake {

class TcpConnection;

// One connection of one peer, as that peer names it.
struct LaneName {
  uint64_t peer_id = 0;
  uint64_t lane_id = 0;
};

class TcpShard {
 public:
  // Closes a connection wherever it is served; `done` is called once that moves no byte any more,
  // on some loop's thread. It is never called when the engine ends before.
  using CloseLaneAnywhere = std::function<void(LaneName lane, std::function<void()> done)>;

  TcpShard(std::shared_ptr<Loop> loop, Owner& owner, CloseLaneAnywhere close_lane);
  ~TcpShard();

  Loop& loop() const { return *loop_; }
  Owner& owner() const { return owner_; }

  // Serves a new connection. Gives what closes it, on any thread, unless it has said hello.
  std::function<void()> Adopt(Fd socket);
  // Nothing of theirs touches memory afterwards.
  void CloseOf(uint64_t peer_id);
  // The same, of those that are moving bytes of a segment.
  void CloseUsersOf(uint64_t segment_id);
  // False: it is not here.
  bool CloseLane(LaneName lane);
  void CloseAll();

  // For connections.
  void CloseElsewhere(LaneName lane, std::function<void()> done) { close_lane_(lane, done); }
  void Drop(TcpConnection& connection);

 private:
  using Predicate = std::function<bool(const TcpConnection&)>;
  bool CloseWhere(const Predicate& is_meant);

  const std::shared_ptr<Loop> loop_;
  Owner& owner_;
  const CloseLaneAnywhere close_lane_;
  std::unordered_map<TcpConnection*, std::shared_ptr<TcpConnection>> connections_;
};

}  // namespace mooncake
