// TcpTransport: reaches a peer through a pool of TCP connections.
//
// Thread safety: all methods may be called by any thread; each takes a lane of its own.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <unordered_set>
#include <vector>

#include "base/socket.h"
#include "transfer/transports/tcp_lane.h"
#include "transfer/transports/transport.h"

namespace mooncake {

class TcpTransport : public Transport, public std::enable_shared_from_this<TcpTransport> {
 public:
  // `hello` names whom to expect; `lane` is a first connection to it.
  TcpTransport(Address address, const Hello& hello, std::unique_ptr<TcpLane> lane);
  ~TcpTransport() override;

  Result<std::shared_ptr<Attachment>> Open(uint64_t segment_id, Deadline deadline) override;
  void End(const Status& reason) override;
  bool IsEnded() const override;
  void AppendStatistics(std::vector<PathStatistics>& statistics) const override;

  // False when the peer has closed the connection that was used last.
  bool IsAlive() const;
  // What the peer says of a segment; kNotFound when it has none.
  Result<OpenReply> Find(const SegmentRef& ref, Deadline deadline);
  Status Execute(Op op, uint64_t segment_id, std::span<const Piece> pieces,
                 const BatchOptions& options);
  Status Notify(std::string_view data, const BatchOptions& options);

 private:
  Result<std::unique_ptr<TcpLane>> Take(Deadline deadline);
  Result<std::unique_ptr<TcpLane>> Connect(Deadline deadline);
  std::unique_ptr<TcpLane> PopIdle();
  void Return(std::unique_ptr<TcpLane> lane, bool is_good);
  Status Explain(Status status, Deadline deadline);

  const Address address_;
  const Hello hello_;

  mutable std::mutex mutex_;
  std::condition_variable returned_;
  Status end_;  // why operations fail; Ok while they need not
  std::vector<std::unique_ptr<TcpLane>> idle_;
  std::unordered_set<const TcpLane*> busy_;
};

}  // namespace mooncake
