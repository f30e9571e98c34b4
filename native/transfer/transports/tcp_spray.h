// TcpSpray: one batch over all paths to a peer, driven by the calling thread.
//
// The batch is cut into slices; the scheduler says which path takes the next. A lane that dies or
// stalls gives its slices back, and they are sent on another, if need be on a new one: as long as
// the peer can be reached at all, the batch goes on. A slice of a write whose bytes may be under
// way is sent again only after the peer has said that the old lane moves no byte any more, so that
// nothing stale lands after the batch has ended. The lanes of writes that failed are treated
// likewise before the next write begins.
//
// Thread safety: one thread. The pieces and the memory under them are the caller's.
#pragma once

#include <poll.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/status.h"
#include "transfer/scheduler.h"
#include "transfer/slicer.h"
#include "transfer/transports/tcp_paths.h"
#include "transfer/transports/tcp_stream.h"
#include "transfer/types.h"

namespace mooncake {

class TcpSpray {
 public:
  struct Batch {
    Op op = Op::kRead;
    uint64_t segment_id = 0;
    std::span<const Piece> pieces = {};  // none of them empty
    PathMask near = kAllPaths;           // paths near its local memory
  };

  // REQUIRES: a Visit to the paths lives as long.
  TcpSpray(TcpPaths& paths, const Batch& batch, const BatchOptions& options);
  ~TcpSpray();
  TcpSpray(const TcpSpray&) = delete;
  TcpSpray& operator=(const TcpSpray&) = delete;

  // Ok: every byte is where it should be. An error of a write is dirty if any byte was sent.
  Status Run();

 private:
  using Request = TcpStream::Request;
  using Kind = Request::Kind;

  // A lane to be closed at the peer before the slices that it had can be sent again; before
  // anything is sent, if it is an earlier batch's.
  struct Fence {
    uint64_t lane_id = 0;
    bool is_earlier = false;
    std::vector<Stretch> stretches = {};
    std::optional<PathIndex> asked_on = {};
    double asked_s = 0;
  };

  bool is_done() const;
  Status Drive();

  Status Assign();
  Status AssignFences();
  std::optional<Request> Book();
  Status Ask(PathIndex path, const Request& request);
  std::optional<PathIndex> FencePath();
  Status Revive();
  Status CheckReachable() const;

  Result<bool> Pump();
  void OnAnswered(PathIndex path);
  Status OnBroken(PathIndex path, const Status& why);
  void Drop(PathIndex path, const Status& why);
  void GiveBack(const Request& request, Fence& fence);
  void MoveStalled();
  PathMask LatePaths(double now);

  void Wait(bool is_busy);
  int WaitMillis();
  void LeavePaths();

  TcpPaths& paths_;
  const Batch batch_;
  const BatchOptions& options_;
  const PathMask all_;
  const BatchIndex booking_;
  Slicer slicer_;
  const TcpStream::Batch asked_;
  std::vector<std::unique_ptr<TcpStream>> streams_;  // by path; null: none
  std::vector<Fence> fences_;
  std::vector<pollfd> polled_;
  uint64_t in_flight_ = 0;    // slices
  bool has_written_ = false;  // a byte, or part of one, may be in the peer's memory
  unsigned deaths_ = 0;       // of lanes, since a slice was last answered
  double died_s_ = 0;         // when the first of them died
  PathMask died_ = 0;         // paths whose lane died since then
  // When no path was up any more; see TcpPaths. Empty: some is.
  std::vector<uint64_t> bad_probes_;
  double looked_s_ = 0;  // for stalled paths
};

}  // namespace mooncake
