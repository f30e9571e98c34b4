// Core: what is behind Engine. Segments, remote segments and transfers may outlive it.
//
// Thread safety: all methods may be called by any thread. mutex_ guards the peer id and the peers.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "transfer/buffers.h"
#include "transfer/copy_team.h"
#include "transfer/engine.h"
#include "transfer/io_pool.h"
#include "transfer/ledger.h"
#include "transfer/loop.h"
#include "transfer/owner.h"
#include "transfer/peer.h"
#include "transfer/shm_server.h"
#include "transfer/tcp_server.h"

namespace mooncake {

class Core {
 public:
  static Result<std::shared_ptr<Core>> Create(const EngineOptions& options);
  ~Core() { Close(); }

  const std::string& endpoint() const { return tcp_server_->endpoints().front(); }
  const std::string& host_id() const { return owner_.greeting.host_id; }
  uint64_t peer_id() const;
  uint64_t engine_id() const { return owner_.greeting.engine_id; }
  BufferTable& buffers() { return buffers_; }
  NotificationQueue& notifications() { return owner_.notifications; }

  Result<std::shared_ptr<Segment>> CreateSegment(uint64_t size_bytes, std::string name);
  Result<std::shared_ptr<Segment>> Lend(uint64_t address, uint64_t size_bytes, bool is_read_only,
                                        std::string name);
  bool CloseSegment(const Segment& segment, Deadline deadline);
  Result<std::shared_ptr<RemoteSegment>> OpenSegment(const std::string& endpoint,
                                                     const SegmentRef& ref, Deadline deadline,
                                                     uint64_t engine_id);
  Result<std::shared_ptr<View>> Map(const RemoteSegment& remote, uint64_t offset, uint64_t length,
                                    Deadline deadline);
  Status Execute(Op op, const RemoteSegment& remote, std::span<const Piece> pieces,
                 const BatchOptions& options, const Note& note);
  Result<std::shared_ptr<Transfer>> Submit(Op op, std::shared_ptr<RemoteSegment> remote,
                                           std::vector<Piece> pieces, const BatchOptions& options,
                                           const Note& note);
  Result<std::shared_ptr<PreparedTransfer>> Prepare(Op op, std::shared_ptr<RemoteSegment> remote,
                                                    std::span<const Piece> pieces);
  Status Execute(PreparedTransfer& prepared, const BatchOptions& options, const Note& note);
  Result<std::shared_ptr<Transfer>> Submit(PreparedTransfer& prepared, const BatchOptions& options,
                                           const Note& note);
  std::vector<PathStatistics> Statistics();
  Result<bool> Fence(uint64_t peer_id, Deadline deadline);
  Result<uint64_t> Rotate();
  void Close();
  // In a child of the process that made it: it has no threads, and the sockets are the parent's.
  bool IsForked() const;
  Status CheckOpen() const;

 private:
  struct Found {
    std::shared_ptr<Peer> peer;
    bool is_new = false;
  };

  explicit Core(const EngineOptions& options);
  Result<std::shared_ptr<Segment>> Add(Result<std::shared_ptr<Segment>> made);
  void Withdraw(const Segment& segment);
  void WithdrawAll();
  Status Admit(Op op, const RemoteSegment& remote, std::span<const Piece> pieces,
               size_t checksum_count, const Note& note) const;
  Result<std::shared_ptr<Transfer>> Submit(SubmittedBatch batch);
  Result<Found> FindPeer(const std::string& endpoint, uint64_t engine_id, Deadline deadline);
  Result<Found> AddPeer(std::shared_ptr<Peer> peer);
  void ForgetPeer(const std::shared_ptr<Peer>& peer);
  void SweepPeers();
  void SweepRetired();
  std::vector<std::shared_ptr<Peer>> TakePeers();

  const EngineOptions options_;
  const int process_;          // that the threads belong to
  const uint64_t fork_count_;  // of it
  Owner owner_;
  BufferTable buffers_;
  const std::shared_ptr<IoPool> io_pool_;
  const std::shared_ptr<CopyTeam> copy_team_;
  const std::shared_ptr<Ledger> ledger_ = std::make_shared<Ledger>();
  std::shared_ptr<TcpServer> tcp_server_;
  std::shared_ptr<ShmServer> shm_server_;
  std::atomic<bool> is_closed_ = false;

  mutable std::mutex mutex_;
  uint64_t peer_id_;
  std::shared_ptr<CancelFlag> ending_ = std::make_shared<CancelFlag>();  // of peer_id_
  std::unordered_map<std::string, std::shared_ptr<Peer>> peers_;         // by endpoint
  std::vector<std::weak_ptr<Peer>> retired_;  // no more in peers_, perhaps still in use
};

}  // namespace mooncake
