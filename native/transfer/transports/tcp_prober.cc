#include "transfer/transports/tcp_prober.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace mooncake {
namespace {

constexpr double kAnswerSeconds = 1.0;
constexpr double kDueSeconds = 0.05;  // between looks at what is due

struct Begun {
  PathIndex path = 0;
  Result<std::unique_ptr<TcpLane>> lane;
};

// Ok: the path leads to the peer, and its connection is kept for the next batch.
Status Finish(TcpPaths& paths, Begun begun, Patience patience) {
  if (!begun.lane.ok()) return begun.lane.status();
  std::unique_ptr<TcpLane> lane = std::move(begun.lane).value();
  const Status greeted = lane->Greet(paths.hello(), patience).status();
  paths.Return(begun.path, std::move(lane), greeted.ok());
  return greeted;
}

}  // namespace

void Probe(TcpPaths& paths, PathMask due, Patience patience) {
  std::vector<Begun> all;
  for (PathIndex path = 0; path < paths.count(); ++path) {
    if ((due & MaskOf(path)) != 0) all.push_back({path, paths.TakeNew(path)});
  }
  for (Begun& begun : all) {
    const PathIndex path = begun.path;
    const Status status = Finish(paths, std::move(begun), patience);
    paths.Schedule(
        [&](PathScheduler& scheduler) { scheduler.Probed(path, status.ok(), MonotonicSeconds()); });
    if (status.ok()) continue;
    if (status.code() == Code::kFenced) paths.Stop(status);
    if (status.code() == Code::kTimeout || status.code() == Code::kCancelled) continue;
    paths.CountBadProbe(
        path, Status(status.code(), paths.route(path).ToString() + ": " + status.message()));
  }
}

TcpProber::TcpProber(TcpPaths& paths) : paths_(paths), thread_([this] { Main(); }) {}

TcpProber::~TcpProber() { thread_.join(); }

void TcpProber::Main() {
  while (paths_.WaitForWork()) {
    const PathMask due = paths_.Schedule(
        [](PathScheduler& scheduler) { return scheduler.ToProbe(MonotonicSeconds()); });
    if (due != 0) Probe(paths_, due, {Deadline::After(kAnswerSeconds), paths_.stopping()});
    if (due == 0) paths_.Pause(kDueSeconds);
  }
}

}  // namespace mooncake
