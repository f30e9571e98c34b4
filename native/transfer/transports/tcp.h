// TcpTransport: reaches a peer over TCP, on every path that there is.
//
// Thread safety: all methods may be called by any thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "transfer/transports/tcp_paths.h"
#include "transfer/transports/tcp_prober.h"
#include "transfer/transports/transport.h"

namespace mooncake {

class TcpTransport : public Transport, public std::enable_shared_from_this<TcpTransport> {
 public:
  struct Target {
    std::string endpoint;  // as the caller names the peer; for messages
    std::vector<Route> routes;
    Hello hello;  // names whom to expect
    // By location of local memory, the local addresses near it; see EngineOptions::preferred.
    std::vector<std::vector<std::string>> near = {};
    uint64_t slice_bytes = 1u << 20;
  };

  // `first` is a connection to the peer, over one of the routes or another.
  TcpTransport(Target target, std::unique_ptr<TcpLane> first);
  ~TcpTransport() override;

  Result<std::shared_ptr<Attachment>> Open(uint64_t segment_id, Deadline deadline) override;
  void End(const Status& reason) override { paths_.End(reason); }
  bool IsEnded() const override { return !paths_.end().ok(); }
  void AppendStatistics(std::vector<PathStatistics>& statistics) const override {
    paths_.AppendStatistics(statistics);
  }

  // False when no path is up, or the peer has closed the connection that was used last.
  bool IsAlive() const { return paths_.IsAlive(); }
  // What the peer says of a segment; kNotFound when it has none.
  Result<OpenReply> Find(const SegmentRef& ref, Deadline deadline);
  Status Execute(Op op, uint64_t segment_id, std::span<const Piece> pieces,
                 const BatchOptions& options);
  Status Notify(std::string_view data, const BatchOptions& options);

 private:
  using Question = std::function<Result<OpenReply>(TcpLane& lane, Patience patience)>;

  Result<OpenReply> Ask(const Question& question, Patience patience);
  Result<OpenReply> AskOverAll(const Question& question, Patience patience);
  Result<OpenReply> AskOver(PathIndex path, const Question& question, Patience patience);
  PathMask Near(int location) const;
  Status Named(const Status& status) const;

  const std::string endpoint_;
  std::vector<PathMask> near_;  // by location of local memory; not changed once it is made
  TcpPaths paths_;
  std::optional<TcpProber> prober_;  // where there is more than one path
};

}  // namespace mooncake
