#include "transfer/scheduler.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace mooncake {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

constexpr uint64_t kLeastSlice = 64 << 10;  // smaller ones cost more than they spread
constexpr uint64_t kTrialSlice = 16 << 10;  // on a path of which nothing is known
constexpr uint64_t kOnlySlice = 256 << 10;  // on the only path, before it is measured
constexpr double kGuessedRate = 100e6;      // of a path when none was measured
constexpr double kWindowS = 0.020;          // of work in flight on a path; one slice more may begin
constexpr uint64_t kMostInFlight = 64;      // slices on a path; both sides remember each
constexpr double kSliceS = 0.008;           // of work in one slice
constexpr double kWorthS = 0.2e-3;          // less work than this is not worth a path of its own
constexpr double kBackgroundS = 0.25;       // at the latest a background batch gets a slice then
constexpr double kAskAgainS = 0.005;        // for a batch that has nothing in flight
constexpr double kRetryS = 0.05;            // between probes of a path when none is up
constexpr double kForgottenS = 1.0;         // a path unused for so long is tried again
constexpr double kTrickle = 4;              // so many times later than expected is no answer
constexpr double kTrialShare = 0.01;        // of its time a path spends on trials at most

template <typename Visit>
void ForEach(PathMask paths, Visit visit) {
  for (; paths != 0; paths &= paths - 1) visit(static_cast<PathIndex>(std::countr_zero(paths)));
}

}  // namespace

PathScheduler::PathScheduler(const SchedulerOptions& options) : options_(options) {
  MC_CHECK(options.slice_bytes > 0, "slice_bytes");
}

PathIndex PathScheduler::AddPath() {
  MC_CHECK(paths_.size() < kMaxPaths, "%zu paths", paths_.size());
  const auto path = static_cast<PathIndex>(paths_.size());
  paths_.emplace_back();
  offers_.reserve(paths_.size());
  paths_.back().backoff_s = options_.probe_s;
  paths_.back().probed_s = -kInfinity;
  up_ |= MaskOf(path);
  return path;
}

BatchIndex PathScheduler::Begin(Priority priority, double now) {
  if (free_.empty()) {
    free_.push_back(static_cast<BatchIndex>(batches_.size()));
    batches_.emplace_back();
  }
  const BatchIndex batch = free_.back();
  free_.pop_back();
  batches_[batch] = {.priority = priority, .is_open = true, .fed_s = now};
  return batch;
}

void PathScheduler::End(BatchIndex batch) {
  Batch& ended = batches_[batch];
  MC_CHECK(ended.is_open && ended.in_flight_slices == 0, "batch %u", batch);
  SetWaits(ended, false);
  ended.is_open = false;
  free_.push_back(batch);
}

void PathScheduler::SetWaits(Batch& batch, bool waits) {
  if (batch.waits == waits) return;
  batch.waits = waits;
  if (batch.priority == Priority::kForeground) waiting_foreground_ += waits ? 1 : -1;
}

// --- choosing ---

std::optional<PathScheduler::Choice> PathScheduler::Pick(BatchIndex batch, const Want& want,
                                                         double now) {
  const auto choice = Choose(batches_[batch], want, now);
  SetWaits(batches_[batch], !choice);
  return choice;
}

std::optional<PathScheduler::Choice> PathScheduler::Choose(const Batch& batch, const Want& want,
                                                           double now) {
  const PathMask paths = Allowed(batch, up_, now);
  if ((paths & want.open) == 0) return std::nullopt;
  if (const auto path = Forgotten(paths & want.near & want.open, now)) {
    return Choice{*path, std::min({want.left_bytes, options_.slice_bytes, kTrialSlice})};
  }

  MakeOffers(paths, batch, want, now);
  const auto taken = TakeOffer(offers_, want.left_bytes, batch.in_flight_slices == 0);
  if (!taken) return std::nullopt;
  return Choice{taken->path, taken->bytes};
}

// A background batch leaves paths alone that foreground ones use or wait for. But once it got
// nothing for kBackgroundS it may have one slice, wherever.
PathMask PathScheduler::Allowed(const Batch& batch, PathMask paths, double now) const {
  if (batch.priority == Priority::kForeground) return paths;
  if (batch.in_flight_slices == 0 && now - batch.fed_s >= kBackgroundS) return paths;
  if (waiting_foreground_ > 0) return 0;
  PathMask allowed = 0;
  ForEach(paths, [&](PathIndex i) { allowed |= paths_[i].foreground_slices == 0 ? MaskOf(i) : 0; });
  return allowed;
}

// A path that was not used for so long that its rate says little, or a path that is too slow for
// the batches of late: without a trial now and then nobody would see that it has become fast.
std::optional<PathIndex> PathScheduler::Forgotten(PathMask paths, double now) const {
  if (std::has_single_bit(paths)) return std::nullopt;
  std::optional<PathIndex> forgotten;
  ForEach(paths, [&](PathIndex i) {
    const Path& path = paths_[i];
    if (path.report.in_flight_slices > 0 || path.report.rate_bytes_per_s <= 0) return;
    const double trial_s = path.report.latency_s + kTrialSlice / path.report.rate_bytes_per_s;
    const double rest_s = path.is_trusted ? trial_s / kTrialShare : 0;
    if (now - path.used_s >= std::max(kForgottenS, rest_s)) forgotten = i;
  });
  return forgotten;
}

void PathScheduler::MakeOffers(PathMask paths, const Batch& batch, const Want& want, double now) {
  const double guess = MeanRate(paths);
  const bool is_only = std::has_single_bit(paths);
  offers_.clear();
  ForEach(paths, [&](PathIndex i) {
    const Path& path = paths_[i];
    const double rate = path.meter.RateNow(path.load(), now);
    PathOffer offer{.path = i,
                    .rate = rate > 0 ? rate : guess,
                    .latency_s = path.meter.latency_s(),
                    .queued = path.meter.QueuedBytes(path.load(), rate, now),
                    .is_open = (want.open & MaskOf(i)) != 0};
    Size(offer, batch, is_only);
    if ((want.near & MaskOf(i)) == 0) {
      offer.rate /= options_.far_factor;
      offer.latency_s *= options_.far_factor;
    }
    offers_.push_back(offer);
  });
}

// How large a slice may be, and whether one more may be in flight.
void PathScheduler::Size(PathOffer& offer, const Batch& batch, bool is_only) const {
  const auto largest = static_cast<double>(options_.slice_bytes);
  const auto least = std::min<double>(largest, kLeastSlice);
  if (!paths_[offer.path].is_trusted) {
    offer.most = std::min<double>(largest, is_only ? kOnlySlice : kTrialSlice);
    offer.least = std::min(least, offer.most);
    offer.has_room = offer.queued < (is_only ? 2 * offer.most : 1);
    return;
  }
  const PathMeter& meter = paths_[offer.path].meter;
  const double part = batch.priority == Priority::kForeground ? 1.0 : 0.5;
  // Twice the latency: a window that just covers it holds a rate low that was measured too low.
  const double window_s = kWindowS * part + 2 * offer.latency_s;
  const double window = std::min(offer.rate * window_s, meter.ProvenBytes(window_s));
  offer.most = std::clamp(std::min(offer.rate * kSliceS * part, window / 2), least, largest);
  offer.least = std::clamp(offer.rate * kWorthS, least, offer.most);
  offer.has_room = offer.queued <= std::max(window, offer.most) &&
                   paths_[offer.path].report.in_flight_slices < kMostInFlight;
}

double PathScheduler::MeanRate(PathMask paths) const {
  double sum = 0;
  int count = 0;
  ForEach(paths, [&](PathIndex i) {
    sum += paths_[i].report.rate_bytes_per_s;
    count += paths_[i].report.rate_bytes_per_s > 0;
  });
  return count > 0 ? sum / count : kGuessedRate;
}

// --- slices ---

PathScheduler::Slice PathScheduler::Start(BatchIndex batch, PathIndex path, uint64_t bytes,
                                          double now) {
  Batch& owner = batches_[batch];
  Path& on = paths_[path];
  MC_CHECK(owner.is_open && bytes > 0, "batch %u", batch);
  MC_CHECK((up_ & MaskOf(path)) != 0, "path %u", path);
  const bool was_idle = on.report.in_flight_slices == 0;
  if (was_idle) {
    on.progress_s = now;
    on.meter.BecomeBusy(now);
  }
  on.used_s = now;
  on.report.in_flight_bytes += bytes;
  ++on.report.in_flight_slices;
  on.foreground_slices += owner.priority == Priority::kForeground;
  ++owner.in_flight_slices;
  owner.fed_s = now;
  return {path, batch, bytes, now, on.report.quarantines, was_idle};
}

void PathScheduler::Progress(PathIndex path, double now) { Moved(paths_[path], now); }

void PathScheduler::Completed(const Slice& slice, double now) {
  Path& path = paths_[slice.path];
  Remove(slice);
  path.report.completed_bytes += slice.bytes;
  ++path.report.completed_slices;
  Moved(path, now);
  if (MustMove(slice)) return;  // says nothing about the path as it is now
  path.is_trusted = true;
  path.backoff_s = options_.probe_s;
  path.meter.Answered(slice.bytes, now - slice.start_s, slice.was_idle, 2 * LeastLatencyS(), now);
  path.ReportMeter();
}

void PathScheduler::Returned(const Slice& slice) {
  Remove(slice);
  ++paths_[slice.path].report.returned_slices;
}

void PathScheduler::Remove(const Slice& slice) {
  Batch& batch = batches_[slice.batch];
  Path& path = paths_[slice.path];
  MC_CHECK(batch.in_flight_slices > 0 && path.report.in_flight_slices > 0, "batch %u path %u",
           slice.batch, slice.path);
  MC_CHECK(path.report.in_flight_bytes >= slice.bytes, "path %u", slice.path);
  --batch.in_flight_slices;
  --path.report.in_flight_slices;
  path.report.in_flight_bytes -= slice.bytes;
  path.foreground_slices -= batch.priority == Priority::kForeground;
}

double PathScheduler::LeastLatencyS() const {
  double least_s = kInfinity;
  for (const Path& path : paths_) {
    if (path.report.rate_bytes_per_s > 0) least_s = std::min(least_s, path.report.latency_s);
  }
  return least_s;
}

// --- paths that fail ---

bool PathScheduler::MustMove(const Slice& slice) const {
  return paths_[slice.path].report.quarantines != slice.quarantines;
}

void PathScheduler::Failed(PathIndex path, double now) {
  ++paths_[path].report.failures;
  Quarantine(path, now);
}

// When the path will have stalled, if nothing happens: no byte has moved for so long, or bytes
// trickle: what is in flight should have been done several times over. One that has not answered
// since it came up has no such credit. After a time when nothing moved anywhere all start anew.
double PathScheduler::StallS(const Path& path) const {
  const PathReport& report = path.report;
  if (report.in_flight_slices == 0) return kInfinity;
  double answer_s = options_.stall_s;
  if (path.is_trusted) {
    const double bytes = static_cast<double>(report.in_flight_bytes);
    const double expected_s = bytes / report.rate_bytes_per_s + report.latency_s;
    answer_s = std::max(answer_s, kTrickle * expected_s);
  }
  return std::min(std::max(path.progress_s, revived_s_) + options_.stall_s,
                  std::max(path.meter.answer_s(), revived_s_) + answer_s);
}

// Something moved; when nothing had for long, then the peer was away, not a path.
void PathScheduler::Moved(Path& path, double now) {
  path.progress_s = now;
  if (now - moved_s_ > options_.stall_s / 2) revived_s_ = now;
  moved_s_ = now;
}

PathMask PathScheduler::Stalled(double now) {
  PathMask stalled = 0;
  ForEach(up_, [&](PathIndex i) { stalled |= StallS(paths_[i]) <= now ? MaskOf(i) : 0; });
  if (stalled == 0 || stalled == up_) return 0;  // when all have stalled, the peer has
  ForEach(stalled, [&](PathIndex i) { Quarantine(i, now); });
  return stalled;
}

void PathScheduler::Quarantine(PathIndex index, double now) {
  Path& path = paths_[index];
  if (path.report.state != PathState::kUp) return;
  path.meter.GiveUp(path.load(), now);
  path.ReportMeter();
  path.report.state = PathState::kQuarantined;
  ++path.report.quarantines;
  up_ &= ~MaskOf(index);
  path.probe_due_s = now + path.backoff_s;
  path.backoff_s = std::min(2 * path.backoff_s, options_.probe_max_s);
  path.is_trusted = false;
}

// When no path is up nothing is gained by patience.
double PathScheduler::ProbeDueS(const Path& path) const {
  return up_ != 0 ? path.probe_due_s : std::min(path.probe_due_s, path.probed_s + kRetryS);
}

PathMask PathScheduler::ToProbe(double now) {
  PathMask due = 0;
  for (PathIndex i = 0; i < paths_.size(); ++i) {
    Path& path = paths_[i];
    if (path.report.state != PathState::kQuarantined || ProbeDueS(path) > now) continue;
    path.report.state = PathState::kProbing;
    due |= MaskOf(i);
  }
  return due;
}

void PathScheduler::Probed(PathIndex index, bool is_good, double now) {
  Path& path = paths_[index];
  MC_CHECK(path.report.state == PathState::kProbing, "path %u", index);
  path.probed_s = now;
  if (is_good) {
    path.report.state = PathState::kUp;
    up_ |= MaskOf(index);
    return;
  }
  ++path.report.failures;
  path.report.state = PathState::kQuarantined;
  path.probe_due_s = now + path.backoff_s;
  path.backoff_s = std::min(2 * path.backoff_s, options_.probe_max_s);
}

double PathScheduler::NextEventS(BatchIndex batch, double now) const {
  const bool has_nothing = batches_[batch].waits && batches_[batch].in_flight_slices == 0;
  double next_s = has_nothing ? now + kAskAgainS : kInfinity;
  for (const Path& path : paths_) {
    if (path.report.state == PathState::kQuarantined) {
      next_s = std::min(next_s, std::max(now, ProbeDueS(path)));
    } else if (path.report.state == PathState::kUp && path.report.in_flight_slices > 0) {
      // One that is overdue already and still up is the last one, or all have stalled.
      const double stall_s = StallS(path);
      if (stall_s > now) next_s = std::min(next_s, stall_s);
    }
  }
  return next_s;
}

void PathScheduler::Check() const {
  uint64_t in_paths = 0;
  uint64_t in_batches = 0;
  uint64_t waiting = 0;
  for (size_t i = 0; i < paths_.size(); ++i) {
    const Path& path = paths_[i];
    const PathReport& report = path.report;
    in_paths += report.in_flight_slices;
    MC_CHECK((report.state == PathState::kUp) == ((up_ & MaskOf(i)) != 0), "path %zu", i);
    MC_CHECK((report.in_flight_slices == 0) == (report.in_flight_bytes == 0), "path %zu", i);
    MC_CHECK(path.foreground_slices <= report.in_flight_slices, "path %zu", i);
    MC_CHECK(std::isfinite(report.rate_bytes_per_s) && report.rate_bytes_per_s >= 0, "path %zu", i);
    MC_CHECK(std::isfinite(report.latency_s) && report.latency_s >= 0, "path %zu", i);
    MC_CHECK(path.backoff_s <= options_.probe_max_s, "path %zu", i);
  }
  for (const Batch& batch : batches_) {
    in_batches += batch.in_flight_slices;
    waiting += batch.waits && batch.priority == Priority::kForeground;
    MC_CHECK(batch.is_open || (batch.in_flight_slices == 0 && !batch.waits), "a closed batch");
  }
  MC_CHECK(in_paths == in_batches && waiting == waiting_foreground_, "the sums");
}

}  // namespace mooncake
