#include "transfer/transports/tcp_spray.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "transfer/transports/tcp_prober.h"

namespace mooncake {
namespace {

constexpr double kProbeSeconds = 1.0;   // where there are other paths to try
constexpr double kFenceSeconds = 0.3;   // until another path is asked
constexpr double kLookSeconds = 0.02;   // between looks for stalled paths
constexpr double kPauseSeconds = 0.01;  // while somebody else probes
constexpr uint64_t kRounds = 2;         // of trying all paths before the peer is given up
constexpr double kHopelessSeconds = 1;  // of lanes that die before they have brought an answer
constexpr int kBusyTurns = 8;           // between looks at sockets that are not busy
constexpr int kWaitMillis = 10;         // where more than sockets has to be watched

}  // namespace

TcpSpray::TcpSpray(TcpPaths& paths, const Batch& batch, const BatchOptions& options)
    : paths_(paths),
      batch_(batch),
      options_(options),
      all_(MaskOfFirst(paths.count())),
      booking_(paths.Schedule([&](PathScheduler& scheduler) {
        return scheduler.Begin(options.priority, MonotonicSeconds());
      })),
      slicer_(batch.pieces),
      asked_{batch.op, batch.segment_id, slicer_, paths.hello()},
      streams_(paths.count()) {
  if (batch.op == Op::kRead) return;
  for (const uint64_t lane_id : paths.loose()) fences_.push_back({lane_id, true});
}

TcpSpray::~TcpSpray() {
  LeavePaths();
  paths_.Schedule([&](PathScheduler& scheduler) { scheduler.End(booking_); });
}

Status TcpSpray::Run() {
  Status status = Drive();
  LeavePaths();
  return has_written_ ? std::move(status).AsDirty() : status;
}

bool TcpSpray::is_done() const {
  return slicer_.left_bytes() == 0 && in_flight_ == 0 && fences_.empty();
}

Status TcpSpray::Drive() {
  for (int turn = 0; !is_done(); ++turn) {
    MC_RETURN_IF_ERROR(options_.CheckTime());
    MC_RETURN_IF_ERROR(Assign());
    auto has_moved = Pump();
    if (!has_moved.ok()) return has_moved.status();
    if (is_done()) break;
    if (!has_moved.value() || turn % kBusyTurns == 0) Wait(has_moved.value());
    if (paths_.has_choice()) MoveStalled();
  }
  return Status::Ok();
}

// --- giving out ---

Status TcpSpray::Assign() {
  MC_RETURN_IF_ERROR(AssignFences());
  const bool must_wait =
      std::any_of(fences_.begin(), fences_.end(), [](const Fence& one) { return one.is_earlier; });
  while (!must_wait && slicer_.left_bytes() > 0) {
    const auto request = Book();
    if (!request) break;
    MC_RETURN_IF_ERROR(Ask(request->booking.path, *request));
  }
  const bool awaits_fence =
      std::any_of(fences_.begin(), fences_.end(), [](const Fence& one) { return !!one.asked_on; });
  if (in_flight_ > 0 || awaits_fence || is_done()) return Status::Ok();
  const bool is_cut_off =
      paths_.Schedule([](const PathScheduler& scheduler) { return scheduler.up() == 0; });
  return is_cut_off ? Revive() : Status::Ok();
}

// A slice for the path that the scheduler chooses; none when it had better wait.
std::optional<TcpSpray::Request> TcpSpray::Book() {
  PathMask open = all_;
  for (PathIndex path = 0; path < streams_.size(); ++path) {
    if (streams_[path] != nullptr && !streams_[path]->has_room()) open &= ~MaskOf(path);
  }
  const double now = MonotonicSeconds();
  return paths_.Schedule([&](PathScheduler& scheduler) -> std::optional<Request> {
    const PathScheduler::Want want{slicer_.left_bytes(), batch_.near, open};
    const auto choice = scheduler.Pick(booking_, want, now);
    if (!choice) return std::nullopt;
    Request request{.kind = Kind::kSlice, .stretch = slicer_.Next(choice->slice_bytes)};
    request.booking = scheduler.Start(booking_, choice->path, request.stretch.bytes, now);
    ++in_flight_;
    return request;
  });
}

// On the batch's lane of that path, which is taken if there is none yet.
Status TcpSpray::Ask(PathIndex path, const Request& request) {
  if (streams_[path] == nullptr) {
    auto lane = paths_.Take(path);
    if (!lane.ok()) {
      Fence unused;
      GiveBack(request, unused);
      return OnBroken(path, lane.status());
    }
    streams_[path] = std::make_unique<TcpStream>(std::move(lane).value(), asked_);
  }
  streams_[path]->Ask(request);
  return Status::Ok();
}

Status TcpSpray::AssignFences() {
  for (size_t i = 0; i < fences_.size(); ++i) {
    if (fences_[i].asked_on) continue;
    const auto path = FencePath();
    if (!path) break;
    fences_[i].asked_on = path;
    fences_[i].asked_s = MonotonicSeconds();
    MC_RETURN_IF_ERROR(Ask(*path, {.kind = Kind::kCloseLane, .lane_id = fences_[i].lane_id}));
  }
  return Status::Ok();
}

// The fastest path that is up.
std::optional<PathIndex> TcpSpray::FencePath() {
  return paths_.Schedule([&](const PathScheduler& scheduler) {
    std::optional<PathIndex> best;
    for (PathIndex path = 0; path < streams_.size(); ++path) {
      if ((scheduler.up() & MaskOf(path)) == 0) continue;
      const double rate = scheduler.report(path).rate_bytes_per_s;
      if (!best || rate > scheduler.report(*best).rate_bytes_per_s) best = path;
    }
    return best;
  });
}

// No path is up, and nothing of this batch is under way: tries them all now.
Status TcpSpray::Revive() {
  if (bad_probes_.empty()) bad_probes_ = paths_.bad_probes();
  const PathMask due = paths_.Schedule(
      [](PathScheduler& scheduler) { return scheduler.ToProbe(MonotonicSeconds()); });
  const double left_s = options_.deadline.seconds_left();
  const double limit_s = paths_.has_choice() ? std::min(left_s, kProbeSeconds) : left_s;
  if (due != 0) Probe(paths_, due, {Deadline::After(limit_s), options_.cancel});
  if (due == 0) paths_.Pause(kPauseSeconds);
  MC_RETURN_IF_ERROR(paths_.end());
  return CheckReachable();
}

// Not ok once every path was refused often enough, whoever tried. What times out may come back.
Status TcpSpray::CheckReachable() const {
  const std::vector<uint64_t> bad = paths_.bad_probes();
  for (size_t path = 0; path < bad.size(); ++path) {
    if (bad[path] - bad_probes_[path] < kRounds) return Status::Ok();
  }
  const Status last = paths_.last_bad_probe();
  if (last.code() != Code::kWrongPeer) return last;
  return Status(Code::kPeerUnreachable, last.message());
}

// --- taking in ---

Result<bool> TcpSpray::Pump() {
  bool has_moved = false;
  for (PathIndex path = 0; path < streams_.size(); ++path) {
    if (streams_[path] == nullptr) continue;
    auto moved = streams_[path]->Pump();
    OnAnswered(path);
    if (!moved.ok()) {
      MC_RETURN_IF_ERROR(OnBroken(path, moved.status()));
    }
    has_moved = has_moved || !moved.ok() || moved.value();
  }
  return has_moved;
}

void TcpSpray::OnAnswered(PathIndex path) {
  for (const Request& request : streams_[path]->TakeAnswered()) {
    if (request.kind == Kind::kHello) continue;
    if (request.kind == Kind::kSlice) {
      paths_.Complete(request.booking, batch_.op, MonotonicSeconds());
      has_written_ = has_written_ || batch_.op == Op::kWrite;
      --in_flight_;
      deaths_ = 0;
      died_ = 0;
      bad_probes_.clear();
      continue;
    }
    const auto fence = std::find_if(fences_.begin(), fences_.end(), [&](const Fence& one) {
      return one.lane_id == request.lane_id;
    });
    if (fence->is_earlier) paths_.RemoveLoose(fence->lane_id);
    for (const Stretch& stretch : fence->stretches) slicer_.PutBack(stretch);
    fences_.erase(fence);
  }
}

// A lane of the path failed, or there is none to be had. Ok: the batch goes on without it.
Status TcpSpray::OnBroken(PathIndex path, const Status& why) {
  const Status named(why.code(), paths_.route(path).ToString() + ": " + why.message());
  const bool is_greeted = streams_[path] != nullptr && streams_[path]->is_greeted();
  if (why.code() == Code::kFenced) paths_.Stop(why);
  MC_RETURN_IF_ERROR(paths_.end());
  if (is_greeted && why.code() != Code::kPeerUnreachable) return named;
  // A path that had worked is tried once more at once.
  if (!is_greeted || (died_ & MaskOf(path)) != 0) {
    paths_.Schedule([&](PathScheduler& scheduler) { scheduler.Failed(path, MonotonicSeconds()); });
  }
  died_ |= MaskOf(path);
  Drop(path, named);
  const double now = MonotonicSeconds();
  if (deaths_++ == 0) died_s_ = now;
  const bool is_hopeless = deaths_ > 4 * paths_.count() + 8 && now - died_s_ > kHopelessSeconds;
  return is_hopeless ? Status(Code::kPeerUnreachable, named.message()) : Status::Ok();
}

// Closes the batch's lane of the path; what was asked on it is to be asked again.
void TcpSpray::Drop(PathIndex path, const Status& why) {
  if (streams_[path] != nullptr) {
    const std::unique_ptr<TcpStream> stream = std::move(streams_[path]);
    Fence fence{.lane_id = stream->lane().id()};
    for (const Request& request : stream->TakeUnanswered()) {
      GiveBack(request, fence);
      const bool has_begun = request.kind == Kind::kSlice && request.request_id != 0;
      if (has_begun) paths_.CountResent(path);
    }
    paths_.Return(path, stream->TakeLane(), false);
    if (!fence.stretches.empty()) fences_.push_back(std::move(fence));
  }
  paths_.Blame(path, why);
}

void TcpSpray::GiveBack(const Request& request, Fence& fence) {
  if (request.kind == Kind::kCloseLane) {
    for (Fence& one : fences_) {
      if (one.lane_id == request.lane_id) one.asked_on.reset();
    }
  }
  if (request.kind != Kind::kSlice) return;
  paths_.Schedule([&](PathScheduler& scheduler) { scheduler.Returned(request.booking); });
  --in_flight_;
  if (request.has_payload_left) {
    has_written_ = true;
    fence.stretches.push_back(request.stretch);
  } else {
    slicer_.PutBack(request.stretch);
  }
}

// Takes slices off paths that were quarantined, by this batch or another.
void TcpSpray::MoveStalled() {
  const double now = MonotonicSeconds();
  if (now - looked_s_ < kLookSeconds) return;
  looked_s_ = now;
  const PathMask late = LatePaths(now);
  for (PathIndex path = 0; path < streams_.size(); ++path) {
    if ((late & MaskOf(path)) == 0) continue;
    Drop(path, Status(Code::kTimeout, paths_.route(path).ToString() + ": moves no bytes"));
  }
}

PathMask TcpSpray::LatePaths(double now) {
  PathMask moving = 0;
  for (PathIndex path = 0; path < streams_.size(); ++path) {
    if (streams_[path] != nullptr && streams_[path]->HasProgressed()) moving |= MaskOf(path);
  }
  return paths_.Schedule([&](PathScheduler& scheduler) {
    for (PathIndex path = 0; path < streams_.size(); ++path) {
      if ((moving & MaskOf(path)) != 0) scheduler.Progress(path, now);
    }
    PathMask late = scheduler.Stalled(now);
    for (const Fence& fence : fences_) {
      if (!fence.asked_on || now - fence.asked_s < kFenceSeconds) continue;
      if ((scheduler.up() & ~MaskOf(*fence.asked_on)) == 0) continue;
      scheduler.Failed(*fence.asked_on, now);
      late |= MaskOf(*fence.asked_on);
    }
    for (PathIndex path = 0; path < streams_.size(); ++path) {
      const Request* oldest = streams_[path] == nullptr ? nullptr : streams_[path]->oldest_slice();
      if (oldest != nullptr && scheduler.MustMove(oldest->booking)) late |= MaskOf(path);
    }
    return late;
  });
}

// --- waiting ---

void TcpSpray::Wait(bool is_busy) {
  polled_.clear();
  for (const auto& stream : streams_) {
    if (stream == nullptr) continue;
    const int fd = stream->is_idle() ? -1 : stream->lane().socket().get();
    polled_.push_back({fd, stream->events(), 0});
  }
  if (poll(polled_.data(), polled_.size(), is_busy ? 0 : WaitMillis()) <= 0) return;
  size_t at = 0;
  for (const auto& stream : streams_) {
    if (stream != nullptr) stream->OnPolled(polled_[at++].revents);
  }
}

int TcpSpray::WaitMillis() {
  const int limit = options_.deadline.PollMillis();
  if (options_.cancel != nullptr || paths_.has_choice()) return std::min(limit, kWaitMillis);
  if (in_flight_ > 0) return limit;
  return std::min(limit, kWaitMillis);  // others are ahead of it
}

// Gives the lanes back; those on which something is unanswered are closed.
void TcpSpray::LeavePaths() {
  for (PathIndex path = 0; path < streams_.size(); ++path) {
    if (streams_[path] == nullptr) continue;
    const bool is_good = streams_[path]->is_idle();
    Fence fence{.lane_id = streams_[path]->lane().id()};
    for (const Request& request : streams_[path]->TakeUnanswered()) GiveBack(request, fence);
    if (!fence.stretches.empty()) paths_.AddLoose(fence.lane_id);
    paths_.Return(path, streams_[path]->TakeLane(), is_good);
    streams_[path].reset();
  }
  for (const Fence& fence : fences_) {
    if (!fence.is_earlier) paths_.AddLoose(fence.lane_id);
  }
  fences_.clear();
}

}  // namespace mooncake
