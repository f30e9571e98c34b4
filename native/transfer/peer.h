// Peer: another engine, as this one reaches it under one peer id of its own.
//
// Thread safety: all methods may be called by any thread.
// Ownership: shared by the engine's table and by the remote segments that were opened through it.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/deadline.h"
#include "base/socket.h"
#include "base/status.h"
#include "transfer/copy_team.h"
#include "transfer/ledger.h"
#include "transfer/loop.h"
#include "transfer/transports/shm.h"
#include "transfer/transports/tcp.h"
#include "transfer/transports/transport.h"
#include "transfer/types.h"

namespace mooncake {

class Peer {
 public:
  struct Self {  // of the engine that reaches out
    uint64_t peer_id = 0;
    std::string host_id;
    std::shared_ptr<Loop> loop;
    std::shared_ptr<CopyTeam> copy_team;
    std::shared_ptr<Ledger> ledger;  // gets the counts of a peer that is let go of
    EngineOptions options;
    std::shared_ptr<const CancelFlag> ending;  // set before this peer id ends
  };

  ~Peer() { self_.ledger->Add(Statistics()); }
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  // Connects to the engine `engine_id` at `endpoint`, or, if that is 0, to whoever is there.
  static Result<std::shared_ptr<Peer>> Connect(const std::string& endpoint, const Self& self,
                                               uint64_t engine_id, Deadline deadline);

  const std::string& endpoint() const { return endpoint_; }
  // True when it is that engine; 0 stands for any.
  bool Is(uint64_t engine_id) const { return engine_id == 0 || engine_id == reply_.engine_id; }
  uint64_t own_peer_id() const { return self_.peer_id; }

  // Chooses the transport: shm where that is possible and wanted, else tcp; the attachment says
  // why.
  Result<std::shared_ptr<Attachment>> Open(const SegmentRef& ref, Deadline deadline);

  // Ends all transports; see Transport::End.
  void End(const Status& reason);
  bool IsEnded() const { return tcp_->IsEnded(); }

  // One entry a path; "gone" once the peer was ended.
  std::vector<PathStatistics> Statistics() const;

  // False once the peer's process is known to be gone.
  bool IsAlive() const { return tcp_->IsAlive(); }

 private:
  Peer(std::string endpoint, Self self, HelloReply reply, std::shared_ptr<TcpTransport> tcp);
  Result<std::shared_ptr<Attachment>> OpenShm(uint64_t segment_id, Deadline deadline);
  Result<std::shared_ptr<Attachment>> OpenTcp(uint64_t segment_id, std::string reason,
                                              Deadline deadline);
  // The transport to a peer on this host, or why the peer is to be reached through the network.
  Result<std::shared_ptr<ShmTransport>> Shm(Deadline deadline);
  std::shared_ptr<Attachment> Cached(uint64_t segment_id);

  const std::string endpoint_;
  const Self self_;
  const HelloReply reply_;
  const std::shared_ptr<TcpTransport> tcp_;

  mutable std::mutex mutex_;
  Status end_;
  std::shared_ptr<ShmTransport> shm_;  // null: not connected (yet)
  std::unordered_map<uint64_t, std::weak_ptr<Attachment>> shm_attachments_;
};

}  // namespace mooncake
