// TcpPaths: the TCP paths to one peer. For each: its two addresses, connections for the next
// batches, and what it has done. The scheduler says which path is taken.
//
// Thread safety: all methods may be called by any thread.
// Invariants: a lane that was taken is given back once. After End no lane is given out.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_set>
#include <utility>
#include <vector>

#include "base/status.h"
#include "transfer/protocol.h"
#include "transfer/scheduler.h"
#include "transfer/transports/tcp_lane.h"
#include "transfer/transports/tcp_route.h"
#include "transfer/types.h"

namespace mooncake {

class TcpPaths {
 public:
  // While it lives, End waits.
  class Visit {
   public:
    explicit Visit(TcpPaths& paths) : paths_(paths), status_(paths.Enter()) {}
    ~Visit() { paths_.Leave(); }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

    const Status& status() const { return status_; }  // not ok: nothing can be done any more

   private:
    TcpPaths& paths_;
    const Status status_;
  };

  // `hello` names whom to expect. REQUIRES: 1 to kMaxPaths routes.
  TcpPaths(const std::vector<Route>& routes, const Hello& hello, const SchedulerOptions& options);
  ~TcpPaths();

  size_t count() const { return paths_.size(); }
  bool has_choice() const { return paths_.size() > 1; }
  const Route& route(PathIndex path) const { return paths_[path].route; }
  const Hello& hello() const { return hello_; }

  // Has `task` done with the scheduler, under the lock.
  template <typename Task>
  auto Schedule(Task task) {
    const std::lock_guard lock(mutex_);
    return task(scheduler_);
  }

  // A connection that is idle, or a new one.
  Result<std::unique_ptr<TcpLane>> Take(PathIndex path);
  // One that is begun and not greeted yet.
  Result<std::unique_ptr<TcpLane>> TakeNew(PathIndex path);
  // Not good: it is closed.
  void Return(PathIndex path, std::unique_ptr<TcpLane> lane, bool is_good);
  // A greeted connection that was not made here.
  void Keep(PathIndex path, std::unique_ptr<TcpLane> lane);

  // A lane was closed here while bytes of a write may have been on it: they may still land, until
  // the peer has closed it too. A write has such lanes closed before it begins.
  void AddLoose(uint64_t lane_id);
  void RemoveLoose(uint64_t lane_id);
  std::vector<uint64_t> loose() const;

  // The slice was answered.
  void Complete(const PathScheduler::Slice& slice, Op op, double now);
  void CountResent(PathIndex path);
  // A connection died or was given up; its path may be quarantined now.
  void Blame(PathIndex path, const Status& reason);

  // A probe was refused, or answered by nobody of the peer.
  void CountBadProbe(PathIndex path, const Status& why);
  // How many of each path there were so far, by anybody; and the last of all.
  std::vector<uint64_t> bad_probes() const;
  Status last_bad_probe() const;

  // Fails what is done from now on and interrupts what is under way. The first reason stays.
  void Stop(const Status& reason);
  // The same, and waits until nothing is under way.
  void End(const Status& reason);
  Status end() const;
  const CancelFlag* stopping() const { return &stopping_; }

  // Waits until some path is not up; false: until Stop.
  bool WaitForWork();
  // Waits `seconds`, at most until Stop.
  void Pause(double seconds);

  // False when no path is up, or the peer has closed the connection that was used last.
  bool IsAlive() const;
  void AppendStatistics(std::vector<PathStatistics>& statistics) const;

 private:
  struct Path {
    Route route;
    std::vector<std::unique_ptr<TcpLane>> idle = {};
    uint64_t busy_count = 0;
    uint64_t read_bytes = 0;
    uint64_t written_bytes = 0;
    uint64_t resent_slices = 0;
    uint64_t failures = 0;
    uint64_t bad_probes = 0;
    std::string reason = {};
  };

  Status Enter();
  void Leave();
  std::unique_ptr<TcpLane> PopIdle(Path& path);

  const Hello hello_;
  CancelFlag stopping_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Status end_;  // why operations fail; Ok while they need not
  int visits_ = 0;
  Status last_bad_probe_;
  std::vector<Path> paths_;
  std::vector<uint64_t> loose_;
  PathScheduler scheduler_;
  std::unordered_set<const TcpLane*> busy_;
};

}  // namespace mooncake
