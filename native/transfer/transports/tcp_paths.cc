#include "transfer/transports/tcp_paths.h"

#include <algorithm>
#include <chrono>

#include "base/check.h"

namespace mooncake {
namespace {

constexpr size_t kIdleLanes = 64;  // kept open on each path for the next batches

std::string Name(PathState state) {
  switch (state) {
    case PathState::kUp:
      return "up";
    case PathState::kQuarantined:
      return "quarantined";
    case PathState::kProbing:
      break;
  }
  return "probing";
}

}  // namespace

TcpPaths::TcpPaths(const std::vector<Route>& routes, const Hello& hello,
                   const SchedulerOptions& options)
    : hello_(hello), scheduler_(options) {
  for (const Route& route : routes) {
    paths_.push_back({.route = route});
    scheduler_.AddPath();
  }
}

TcpPaths::~TcpPaths() = default;

Result<std::unique_ptr<TcpLane>> TcpPaths::Take(PathIndex index) {
  Path& path = paths_[index];
  {
    const std::lock_guard lock(mutex_);
    if (!end_.ok()) return end_;
    if (auto lane = PopIdle(path)) return lane;
  }
  return TakeNew(index);
}

Result<std::unique_ptr<TcpLane>> TcpPaths::TakeNew(PathIndex index) {
  Path& path = paths_[index];
  auto lane = TcpLane::Start(path.route);
  if (!lane.ok()) return lane;
  const std::lock_guard lock(mutex_);
  if (!end_.ok()) return end_;
  busy_.insert(lane.value().get());
  ++path.busy_count;
  return lane;
}

std::unique_ptr<TcpLane> TcpPaths::PopIdle(Path& path) {
  while (!path.idle.empty()) {
    std::unique_ptr<TcpLane> lane = std::move(path.idle.back());
    path.idle.pop_back();
    if (!lane->IsQuiet()) continue;
    busy_.insert(lane.get());
    ++path.busy_count;
    return lane;
  }
  return nullptr;
}

void TcpPaths::Return(PathIndex index, std::unique_ptr<TcpLane> lane, bool is_good) {
  const std::lock_guard lock(mutex_);
  Path& path = paths_[index];
  busy_.erase(lane.get());
  --path.busy_count;
  if (is_good && end_.ok() && path.idle.size() < kIdleLanes) path.idle.push_back(std::move(lane));
}

void TcpPaths::Keep(PathIndex path, std::unique_ptr<TcpLane> lane) {
  const std::lock_guard lock(mutex_);
  if (end_.ok()) paths_[path].idle.push_back(std::move(lane));
}

void TcpPaths::AddLoose(uint64_t lane_id) {
  const std::lock_guard lock(mutex_);
  loose_.push_back(lane_id);
}

void TcpPaths::RemoveLoose(uint64_t lane_id) {
  const std::lock_guard lock(mutex_);
  std::erase(loose_, lane_id);
}

std::vector<uint64_t> TcpPaths::loose() const {
  const std::lock_guard lock(mutex_);
  return loose_;
}

void TcpPaths::Complete(const PathScheduler::Slice& slice, Op op, double now) {
  const std::lock_guard lock(mutex_);
  Path& path = paths_[slice.path];
  (op == Op::kRead ? path.read_bytes : path.written_bytes) += slice.bytes;
  scheduler_.Completed(slice, now);
}

void TcpPaths::CountResent(PathIndex path) {
  const std::lock_guard lock(mutex_);
  ++paths_[path].resent_slices;
}

void TcpPaths::Blame(PathIndex path, const Status& reason) {
  const std::lock_guard lock(mutex_);
  ++paths_[path].failures;
  paths_[path].reason = reason.message();
  changed_.notify_all();
}

void TcpPaths::CountBadProbe(PathIndex path, const Status& why) {
  const std::lock_guard lock(mutex_);
  ++paths_[path].bad_probes;
  last_bad_probe_ = why;
}

std::vector<uint64_t> TcpPaths::bad_probes() const {
  const std::lock_guard lock(mutex_);
  std::vector<uint64_t> counts;
  for (const Path& path : paths_) counts.push_back(path.bad_probes);
  return counts;
}

Status TcpPaths::last_bad_probe() const {
  const std::lock_guard lock(mutex_);
  return last_bad_probe_;
}

Status TcpPaths::Enter() {
  const std::lock_guard lock(mutex_);
  ++visits_;
  return end_;
}

void TcpPaths::Leave() {
  const std::lock_guard lock(mutex_);
  --visits_;
  if (!end_.ok()) changed_.notify_all();
}

void TcpPaths::Stop(const Status& reason) {
  const std::lock_guard lock(mutex_);
  if (end_.ok()) end_ = reason;
  stopping_.Set();
  for (Path& path : paths_) path.idle.clear();
  for (const TcpLane* lane : busy_) lane->Interrupt();
  changed_.notify_all();
}

void TcpPaths::End(const Status& reason) {
  Stop(reason);
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return visits_ == 0; });
}

Status TcpPaths::end() const {
  const std::lock_guard lock(mutex_);
  return end_;
}

bool TcpPaths::WaitForWork() {
  const PathMask all = MaskOfFirst(count());
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return !end_.ok() || scheduler_.up() != all; });
  return end_.ok();
}

void TcpPaths::Pause(double seconds) {
  std::unique_lock lock(mutex_);
  changed_.wait_for(lock, std::chrono::duration<double>(seconds), [&] { return !end_.ok(); });
}

bool TcpPaths::IsAlive() const {
  const std::lock_guard lock(mutex_);
  if (!end_.ok() || scheduler_.up() == 0) return false;
  bool is_closed = false;
  for (const Path& path : paths_) {
    if (path.busy_count > 0) return true;
    if (path.idle.empty()) continue;
    if (path.idle.back()->IsQuiet()) return true;
    is_closed = true;
  }
  return !is_closed;
}

void TcpPaths::AppendStatistics(std::vector<PathStatistics>& statistics) const {
  const std::lock_guard lock(mutex_);
  for (PathIndex i = 0; i < paths_.size(); ++i) {
    const Path& path = paths_[i];
    const PathReport& report = scheduler_.report(i);
    statistics.push_back({.transport = "tcp",
                          .local = path.route.local,
                          .remote = path.route.remote.ToString(),
                          .state = Name(report.state),
                          .reason = path.reason,
                          .read_bytes = path.read_bytes,
                          .written_bytes = path.written_bytes,
                          .slices = report.completed_slices,
                          .resent_slices = path.resent_slices,
                          .failures = path.failures,
                          .quarantines = report.quarantines,
                          .connections = path.idle.size() + path.busy_count,
                          .in_flight_bytes = report.in_flight_bytes,
                          .rate_bytes_per_s = report.rate_bytes_per_s});
  }
}

}  // namespace mooncake
