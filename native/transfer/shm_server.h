// ShmServer: the Unix socket through which processes of this host and user get memory files, and
// the record of who may still write what, or has views of it.
//
// Thread safety: Create, name() and WaitUntilHarmless by any thread; all else on the loop's thread.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>

#include "base/deadline.h"
#include "base/fd.h"
#include "base/status.h"
#include "transfer/listener.h"
#include "transfer/loop.h"
#include "transfer/owner.h"

namespace mooncake {

class ShmClient;

class ShmServer : public Watcher, public std::enable_shared_from_this<ShmServer> {
 public:
  static Result<std::shared_ptr<ShmServer>> Create(Owner& owner);
  ~ShmServer() override;

  const std::string& name() const { return name_; }

  void Start();
  void OnReady(uint64_t token, uint32_t events) override;
  // After the id was barred: tells its processes.
  void Revoke(uint64_t peer_id);
  // After a segment was closed: tells those that hold it.
  void Withdraw(uint64_t segment_id);
  void Stop();

  // Blocks until no process with this id can write or views anything, or the deadline: false.
  // REQUIRES: Revoke(peer_id) was called.
  bool WaitUntilHarmless(uint64_t peer_id, Deadline deadline);

 private:
  friend class ShmClient;
  using Clients = std::unordered_map<ShmClient*, std::shared_ptr<ShmClient>>;

  ShmServer(Fd listener, std::string name, Owner& owner);
  Clients Snapshot() const;
  void Drop(ShmClient& client);
  void Changed();

  Listener listener_;
  const std::string name_;
  Owner& owner_;
  uint64_t token_ = 0;

  mutable std::mutex mutex_;  // guards clients_; the loop's thread alone changes it
  std::condition_variable changed_;
  Clients clients_;
};

}  // namespace mooncake
