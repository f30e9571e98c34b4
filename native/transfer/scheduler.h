// PathScheduler: which path to a peer carries the next slice of which batch, decided by what the
// last slices saw. One for each peer, shared by all batches to it.
//
// Pure: no I/O, clock or randomness; `now` is any monotonic time in seconds.
// Thread safety: none; under its owner's mutex. Nothing but AddPath and Begin allocates.
//
// A driver of one batch goes round this loop, the mutex held for the scheduler's calls:
//
//   while (left > 0) if (auto choice = Pick(...)) Start(...) and send; else break;
//   wait for its sockets, at most until NextEventS;
//   Progress for each path that moved bytes; Completed for each slice that was answered;
//   Failed for each connection that died; Stalled; probe what ToProbe names, and say Probed;
//   for each of its slices that MustMove: fence it, then Returned, and its bytes are left again.
//
// A batch of which nothing is in flight gets a slice whenever a path is up, unless it is a
// background one that foreground ones hold up. So a batch that has to wait either has an answer
// to wait for or is to ask again at NextEventS; no batch has to wake another.
//
// A background batch gets nothing on a path that foreground slices use, and nothing anywhere while
// a foreground batch waits; but one that has had nothing for a quarter of a second gets one slice.
//
// Invariants: a path that is not up gets no slice; every slice that starts ends in exactly one of
// Completed and Returned.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "transfer/path_meter.h"
#include "transfer/path_offer.h"
#include "transfer/types.h"

namespace mooncake {

using PathIndex = uint32_t;
using PathMask = uint64_t;  // bit i is path i
using BatchIndex = uint32_t;

inline constexpr PathIndex kMaxPaths = 64;
inline constexpr PathMask kAllPaths = ~PathMask{0};

constexpr PathMask MaskOf(PathIndex path) { return PathMask{1} << path; }
// REQUIRES: 1 <= count <= kMaxPaths.
constexpr PathMask MaskOfFirst(size_t count) { return kAllPaths >> (kMaxPaths - count); }

struct SchedulerOptions {
  uint64_t slice_bytes = 1u << 20;  // the largest slice
  double stall_s = 0.3;             // work in flight, and no byte or far too few for so long
  double probe_s = 0.5;             // from quarantine to the first probe; doubles with each
  double probe_max_s = 2.0;         // ... up to this
  double far_factor = 3.0;          // a far path has to be so much sooner than a near one
};

enum class PathState : uint8_t {
  kUp,
  kQuarantined,  // gets no slices; a probe will be due
  kProbing,      // gets no slices; a probe is under way
};

// What one path has done, and how it looks now.
struct PathReport {
  PathState state = PathState::kUp;
  double rate_bytes_per_s = 0;   // 0: not measured yet
  double latency_s = 0;          // of a slice on an idle path, less its bytes at that rate
  uint64_t in_flight_bytes = 0;  // now
  uint64_t in_flight_slices = 0;
  uint64_t completed_bytes = 0;
  uint64_t completed_slices = 0;
  uint64_t returned_slices = 0;
  uint64_t failures = 0;
  uint64_t quarantines = 0;
};

class PathScheduler {
 public:
  // What a batch asks for.
  struct Want {
    uint64_t left_bytes = 0;    // in no slice yet; > 0
    PathMask near = kAllPaths;  // paths near its memory
    PathMask open = kAllPaths;  // paths that it can send on now; it may wait for a better one
  };
  struct Choice {
    PathIndex path = 0;
    uint64_t slice_bytes = 0;  // at most so much; > 0, <= left_bytes and <= options.slice_bytes
  };
  // A slice under way: made by Start, to be kept by its batch and given back once.
  struct Slice {
    PathIndex path = 0;
    BatchIndex batch = 0;
    uint64_t bytes = 0;
    double start_s = 0;
    uint64_t quarantines = 0;  // of the path at the start
    bool was_idle = false;     // the path, at the start
  };

  explicit PathScheduler(const SchedulerOptions& options);

  // REQUIRES: fewer than kMaxPaths so far.
  PathIndex AddPath();

  BatchIndex Begin(Priority priority, double now);
  // REQUIRES: nothing of it is in flight.
  void End(BatchIndex batch);

  // Where the batch's next slice should go; nothing: not now.
  std::optional<Choice> Pick(BatchIndex batch, const Want& want, double now);
  // The batch sends `bytes` on `path`. At once after the Pick that chose it; `bytes` may be fewer.
  Slice Start(BatchIndex batch, PathIndex path, uint64_t bytes, double now);
  // Bytes moved on the path, in either direction. For a write, bytes that the peer has not
  // acknowledged have not moved: a send buffer takes them on a dead path too.
  void Progress(PathIndex path, double now);
  // The whole slice was answered.
  void Completed(const Slice& slice, double now);
  // The slice ended some other way: it is to be sent again, or its batch gave up.
  void Returned(const Slice& slice);

  // A connection of the path died, or could not be made: quarantines the path.
  void Failed(PathIndex path, double now);
  // Quarantines the paths that have stalled while another could be used, and names them.
  PathMask Stalled(double now);
  // True when the slice's path was quarantined after the slice began: fence and return it.
  bool MustMove(const Slice& slice) const;

  // Names the paths to be tried with a new connection now; each is "probing" until Probed. A probe
  // is not to take longer than a second, or a link that returned is not used within five.
  PathMask ToProbe(double now);
  // What a probe found. REQUIRES: the path is probing.
  void Probed(PathIndex path, bool is_good, double now);

  // When the batch's driver has to come by though nothing happened on its sockets; infinity: never.
  double NextEventS(BatchIndex batch, double now) const;

  PathMask up() const { return up_; }
  size_t path_count() const { return paths_.size(); }
  const PathReport& report(PathIndex path) const { return paths_[path].report; }
  // Ends the process if an invariant does not hold.
  void Check() const;

 private:
  struct Path {
    PathReport report;
    PathMeter meter;
    uint64_t foreground_slices = 0;  // in flight
    double progress_s = 0;           // when bytes last moved, or work began
    double used_s = 0;               // when a slice last started
    bool is_trusted = false;         // a slice was answered since it came up
    double backoff_s = 0;            // from the next quarantine or bad probe to a probe
    double probe_due_s = 0;
    double probed_s = 0;  // when the last probe ended

    PathMeter::Load load() const { return {report.in_flight_bytes, report.in_flight_slices}; }
    void ReportMeter() {
      report.rate_bytes_per_s = meter.rate_bytes_per_s();
      report.latency_s = meter.latency_s();
    }
  };
  struct Batch {
    Priority priority = Priority::kForeground;
    bool is_open = false;
    bool waits = false;  // its last Pick found nothing
    uint64_t in_flight_slices = 0;
    double fed_s = 0;  // when it began or last started a slice
  };

  std::optional<Choice> Choose(const Batch& batch, const Want& want, double now);
  PathMask Allowed(const Batch& batch, PathMask paths, double now) const;
  std::optional<PathIndex> Forgotten(PathMask paths, double now) const;
  void MakeOffers(PathMask paths, const Batch& batch, const Want& want, double now);
  void Size(PathOffer& offer, const Batch& batch, bool is_only) const;
  double MeanRate(PathMask paths) const;
  void SetWaits(Batch& batch, bool waits);
  void Remove(const Slice& slice);
  double LeastLatencyS() const;
  void Quarantine(PathIndex path, double now);
  double ProbeDueS(const Path& path) const;
  double StallS(const Path& path) const;
  void Moved(Path& path, double now);

  const SchedulerOptions options_;
  std::vector<Path> paths_;
  std::vector<Batch> batches_;
  std::vector<BatchIndex> free_;   // of batches_
  std::vector<PathOffer> offers_;  // of the last Pick; kept for its space
  PathMask up_ = 0;
  uint64_t waiting_foreground_ = 0;  // batches
  double moved_s_ = 0;               // when a byte last moved on any path
  double revived_s_ = 0;             // ... after none had for long
};

}  // namespace mooncake
