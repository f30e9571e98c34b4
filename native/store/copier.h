// Copier: carries out what the master orders a node to copy: fetches stripes one-sided from other
// nodes into the node's own segment, one after another on a thread of its own, and verifies them.
//
// Thread safety: all methods may be called by any thread.
// Ownership: shares the engine and, while it has orders for it, the segment. Destroying it ends it.
// Invariants: an order is carried out once. Nothing is written for an order that is not asked for
// any more, but for the one that is under way: it is asked for until the master has its result.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "store/messages.h"
#include "store/segment_cache.h"
#include "transfer/engine.h"

namespace mooncake::store {

class Copier {
 public:
  // `on_news` is called, by the copier's thread, when there is a result that was not there before.
  Copier(std::shared_ptr<Engine> engine, std::function<void()> on_news);
  ~Copier();
  Copier(const Copier&) = delete;
  Copier& operator=(const Copier&) = delete;

  // What the master asks for now, all of it. A result that it does not ask for it has heard of.
  void Obey(const std::shared_ptr<Segment>& segment, std::vector<CopyOrder> orders);
  std::vector<CopyResult> Finished() const;
  // The segment goes: its orders and results are void. What is under way ends soon, without a
  // result; CloseSegment waits for it.
  void Forget();

 private:
  struct Task {
    CopyOrder order;
    std::shared_ptr<Segment> segment;
    CancelFlag cancel;
  };

  void Run();
  CopyResult Fetch(const Task& task);
  Status FetchFrom(const Task& task, const Placement& source);

  const std::shared_ptr<Engine> engine_;
  const std::function<void()> on_news_;
  SegmentCache segments_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_closed_ = false;
  std::map<uint64_t, std::shared_ptr<Task>> waiting_;  // by order: the oldest goes first
  std::shared_ptr<Task> running_;
  std::map<uint64_t, CopyResult> finished_;

  std::thread thread_;
};

}  // namespace mooncake::store
