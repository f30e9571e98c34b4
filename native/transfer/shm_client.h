// ShmClient: what the owner knows of one process that reaches its memory without its help.
//
// It lives until that process can do no harm any more: it said so (Bye), or holds nothing that
// counts and closed, or is dead, which its pidfd tells. What counts is memory that it may write or
// has views of, and memory that was lent, which may be freed once nobody reads it.
//
// Thread safety: peer_id() and is_awaited() by any thread; all else on the loop's thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <unordered_map>

#include "base/fd.h"
#include "transfer/loop.h"
#include "transfer/owner.h"
#include "transfer/unix_socket.h"

namespace mooncake {

class ShmServer;

class ShmClient : public Watcher, public std::enable_shared_from_this<ShmClient> {
 public:
  ShmClient(Fd socket, Fd pidfd, Owner& owner, ShmServer& server);

  void Start();
  void OnReady(uint64_t token, uint32_t events) override;

  uint64_t peer_id() const { return peer_id_; }  // 0 before its hello
  // Whether it holds memory that a fence waits for: that it may write, or has views of.
  bool is_awaited() const { return awaited_ > 0; }
  // Tells the process that it is fenced; lets go of it when it holds nothing that counts.
  void Revoke();
  // Tells the process that a segment is gone.
  void Withdraw(uint64_t segment_id);
  // Forgets the process, which holds nothing any more.
  void Leave();
  // Forgets the process, whatever it holds; memory that was lent to it stays in use for ever.
  void Abandon();

 private:
  struct Holding {
    uint64_t segment_id = 0;
    bool is_lent = false;
    bool is_awaited = false;  // by fences
    Segment::Use use = {};    // of memory that was lent
  };

  void Drain();
  Status OnPacket(const Packet& packet);
  Status OnHello(const Packet& packet);
  Status OnMap(const Packet& packet);
  Status OnView(const Packet& packet);
  Status OnNotify(const Packet& packet);
  Status OnRelease(const Packet& packet);
  Status Answer(const Packet& packet, const Map& map, const Segment& segment);
  Status Refuse(const Packet& packet, const Status& status);
  bool HoldsAnyThatCounts() const;
  void Await(Holding& holding);
  void GiveUp();
  void Hang();

  Fd socket_;
  const Fd pidfd_;
  Owner& owner_;
  ShmServer& server_;
  uint64_t socket_token_ = 0;
  uint64_t pidfd_token_ = 0;
  std::atomic<uint64_t> peer_id_ = 0;
  std::atomic<int> awaited_ = 0;  // of holdings_
  bool has_left_ = false;
  std::unordered_map<uint64_t, Holding> holdings_;  // by handle
};

}  // namespace mooncake
