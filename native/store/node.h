// Node: lends memory to the store: a segment of an engine, announced to the master and kept alive
// by a heartbeat from a thread of its own. Payload reaches it one-sided; copies that the master
// orders it fetches itself.
//
// Thread safety: all methods may be called by any thread.
// Ownership: shares the engine; owns its segment and threads; destroying it closes it.
// Invariants: a segment belongs to one epoch of the master and is never announced again once the
// master has not known it: writers of before may still reach it. Then new memory is taken.
//
// Names: a node whose name another has is refused, and asks again: the other may be this one's own
// past, which is not lost yet. One that is still refused when a dead node would long be lost gives
// up, for the other lives.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>

#include "base/status.h"
#include "store/copier.h"
#include "store/master_client.h"
#include "transfer/engine.h"

namespace mooncake::store {

struct NodeOptions {
  std::string master;  // host:port
  uint64_t capacity_bytes = 0;
  std::string name{};    // unique among the nodes there; empty: the engine's endpoint
  std::string domain{};  // no two copies of an object are in one; empty: the host
};

class Node {
 public:
  // Takes the memory. The master may come later. kOutOfSpace when there is not so much memory.
  static Result<std::unique_ptr<Node>> Start(std::shared_ptr<Engine> engine,
                                             const NodeOptions& options);
  ~Node() { Close(); }

  uint64_t epoch() const;  // of the master that knows this node; 0: none does
  NodeId id() const;       // of its segment
  // Why the master does not take this node in, as it said last; empty: it does, or was not reached.
  std::string refusal() const;
  // Seconds since the first heartbeat in a row that failed; 0: the master answers.
  double unanswered_s() const;
  // It was refused for good, and asks no more.
  bool has_given_up() const;
  void Close();

 private:
  Node(std::shared_ptr<Engine> engine, const NodeOptions& options);

  Status TakeMemory();
  void Run();
  Status Exchange();
  Status Announce(uint64_t epoch);
  Status Refused(const NodeReply& reply);
  Status Unreached(Status status);
  void Obey(NodeReply reply);
  void TellSoon();
  void RunFences();

  const std::shared_ptr<Engine> engine_;
  const NodeOptions options_;
  MasterClient master_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_closed_ = false;
  bool is_virgin_ = true;  // the segment was never announced
  std::shared_ptr<Segment> segment_;
  uint64_t epoch_ = 0;
  uint64_t refused_by_ = 0;  // the epoch that has refused the segment; 0: none has
  std::string refusal_;
  double unanswered_since_s_ = 0;     // 0: it answers
  std::optional<Deadline> patience_;  // with the refusals, since the first
  bool has_given_up_ = false;
  double period_s_ = 0.5;
  std::set<uint64_t> to_fence_, fenced_;
  bool has_news_ = false;  // a fence or a copy that the master has not heard of

  Copier copier_;
  std::thread heartbeat_, fencer_;
};

}  // namespace mooncake::store
