// ShmClient: what the owner knows of one process that reaches its memory by mapping it.
//
// It lives until that process can write nothing any more: it said so (Bye), or never got anything
// writable and closed, or is dead, which its pidfd tells.
//
// Thread safety: peer_id() by any thread; all else on the loop's thread.
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
  // Tells the process that it is fenced; lets go of it when it holds nothing writable.
  void Revoke();
  // Tells the process that a segment is gone.
  void Withdraw(uint64_t segment_id);
  // Forgets the process, whatever it holds.
  void Leave();

 private:
  struct Mapping {
    uint64_t segment_id;
    bool is_writable;
  };

  void Drain();
  Status OnPacket(const Packet& packet);
  Status OnHello(const Packet& packet);
  Status OnMap(const Packet& packet);
  Status OnRelease(const Packet& packet);
  Status Refuse(const Packet& packet, const Status& status);
  bool HoldsWritable() const;
  void Hang();

  Fd socket_;
  const Fd pidfd_;
  Owner& owner_;
  ShmServer& server_;
  uint64_t socket_token_ = 0;
  uint64_t pidfd_token_ = 0;
  std::atomic<uint64_t> peer_id_ = 0;
  bool has_left_ = false;
  std::unordered_map<uint64_t, Mapping> mappings_;  // by handle
};

}  // namespace mooncake
