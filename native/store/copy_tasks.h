// CopyTasks: what people ask for in the background: a copy of an object, a move, and the draining
// of a node, which evicts nothing and loses nothing. Pure.
//
// Thread safety: none; one owner.
// Invariants: a node drains for as long as a task of it runs, and after one that emptied it until
// that is undone; it has one such task at most. Of tasks that have ended the last kRemembered are
// known.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "store/copy_jobs.h"
#include "store/messages.h"

namespace mooncake::store {

class CopyTasks {
 public:
  static constexpr size_t kRemembered = 1000;
  static constexpr size_t kMaxRunning = 1000;

  CopyTasks(Inventory& inventory, CopyJobs& jobs) : inventory_(inventory), jobs_(jobs) {}

  // Draining a node that drains already gives the task that does it, undraining the one that did.
  TaskCreated Create(const TaskCreate& event, double now_s);
  // kInvalidArgument when the answer would not fit a frame.
  Result<Tasks> Query(const TaskQuery& event, double now_s);

  // Starts copies, some tens of steps each.
  void Work(int& steps, double now_s);
  // True when Work would do something now that it has not found undoable a moment ago.
  bool has_work(double now_s) const;
  void Ended(const CopyJobs::End& end);
  void Lost(NodeId node);
  bool IsDraining(NodeId node) const { return draining_.contains(node); }
  size_t running() const { return running_.size(); }

 private:
  struct Task {
    TaskInfo info;
    double started_s = 0;
    // Copies and moves: where to, one after another; kNoIndex: where there is room.
    uint32_t object = kNoIndex;
    uint64_t generation = 0;
    std::vector<NodeId> targets;
    size_t next = 0;
    // Moves and drains.
    NodeId source = 0;
    uint32_t slot = kNoIndex;                     // of the source
    uint32_t cursor = 0;                          // of its blocks
    int vain_passes = 0;                          // that changed nothing, in a row
    bool has_moved = false;                       // something, in this pass
    uint64_t stuck_objects = 0, stuck_bytes = 0;  // in this pass
    uint32_t jobs = 0;                            // under way
  };
  std::string Begin(const TaskCreate& event, Task& task);
  std::string BeginDrain(const TaskCreate& event, Task& task);
  TaskCreated Undrain(const std::string& name);
  void Reopen(NodeId node);
  void Close(uint64_t id, TaskState state, std::string problem);
  void ForgetFirst();
  void Copy(uint64_t id, Task& task, double now_s);
  void Drain(uint64_t id, Task& task, int& steps, double now_s);
  void EndPass(uint64_t id, Task& task, double now_s);
  void MoveOff(uint64_t id, Task& task, uint32_t object, uint32_t block);
  static bool IsMet(std::span<const CopyExtent> extents, uint32_t slot, uint32_t block);
  size_t CopyOn(const Object& object, uint32_t slot) const;
  bool HasOther(const Object& object, size_t copy) const;
  void Measure(Task& task) const;
  std::string Rest(const Task& task) const;

  Inventory& inventory_;
  CopyJobs& jobs_;
  std::map<uint64_t, Task> tasks_;
  std::map<uint64_t, double> running_;             // task -> when there is something to do for it
  std::unordered_map<NodeId, uint64_t> draining_;  // -> task
  std::deque<uint64_t> over_;                      // in the order of their ends
  uint64_t last_task_ = 0;
};

}  // namespace mooncake::store
