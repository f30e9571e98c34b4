// TcpServer: listens on every address of an engine and spreads the connections over its loops.
//
// Thread safety: Create, endpoints() and CloseLane by any thread; all else on the owner's loop.
// Invariants: no thread of a shard ever waits for the owner's loop, which may wait for it.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "base/fd.h"
#include "base/socket.h"
#include "base/status.h"
#include "transfer/listener.h"
#include "transfer/loop.h"
#include "transfer/owner.h"
#include "transfer/tcp_shard.h"
#include "transfer/types.h"

namespace mooncake {

class TcpServer : public Watcher, public std::enable_shared_from_this<TcpServer> {
 public:
  // Listens on `options.listen` and on all of `options.addresses`, there on the same port where it
  // is free. kInvalidArgument or kSystem, naming the address.
  static Result<std::shared_ptr<TcpServer>> Create(const EngineOptions& options, Owner& owner);
  ~TcpServer() override;

  // host:port that are bound; that of `listen` is first.
  const std::vector<std::string>& endpoints() const { return endpoints_; }

  // kSystem when there are no more threads or descriptors.
  Status Start(int serve_threads);
  void OnReady(uint64_t token, uint32_t events) override;
  // Closes the connections of one peer; nothing of theirs touches memory afterwards.
  void CloseOf(uint64_t peer_id);
  // After a segment was closed: nothing touches it afterwards.
  void Withdraw(uint64_t segment_id);
  void Stop();

 private:
  explicit TcpServer(Owner& owner) : owner_(owner) {}
  Status Listen(const Address& address);
  void AddShard(std::shared_ptr<Loop> loop);
  void Serve(Fd socket);
  void CloseLane(size_t shard, LaneName lane, std::function<void()> done);

  Owner& owner_;
  std::vector<Listener> listeners_;
  std::vector<std::string> endpoints_;
  std::vector<uint64_t> tokens_;
  std::vector<std::unique_ptr<TcpShard>> shards_;  // the first is on the owner's loop
  size_t next_shard_ = 0;
};

}  // namespace mooncake
