#include "store/copy_tasks.h"

#include <algorithm>
#include <iterator>
#include <limits>

namespace mooncake::store {
namespace {

constexpr double kPass_s = 0.1;  // between two looks at what could not be moved
constexpr int kVainPasses = 3;   // after which a drain gives up
constexpr double kLater_s = 0.05;
constexpr double kNever_s = std::numeric_limits<double>::infinity();
constexpr int kLooksAStep = 30;
constexpr uint64_t kTaskBytes = 128;  // of one in an answer, besides its texts

const char* Explain(CopyJobs::Outcome outcome) {
  switch (outcome) {
    case CopyJobs::Outcome::kNoRoom:
      return "there is no room for it";
    case CopyJobs::Outcome::kNoDomain:
      return "no node that takes objects is in a domain without a copy of it";
    case CopyJobs::Outcome::kNoSource:
      return "it cannot be read now";
    default:
      return "";
  }
}

}  // namespace

TaskCreated CopyTasks::Create(const TaskCreate& event, double now_s) {
  if (event.kind > TaskKind::kUndrain) {
    return {0, "a task of kind " + std::to_string(static_cast<int>(event.kind)) +
                   " is not known; it is 0 (copy), 1 (move), 2 (drain) or 3 (undrain)"};
  }
  if (event.kind == TaskKind::kUndrain) return Undrain(event.source);
  Task task{.info = {}, .started_s = now_s, .targets = {}};
  task.info.kind = event.kind;
  if (event.kind == TaskKind::kDrain) {
    const uint32_t slot = inventory_.nodes().FindNamed(event.source);
    const auto there =
        slot == kNoIndex ? draining_.end() : draining_.find(inventory_.nodes()[slot].id);
    if (there != draining_.end()) return {there->second, ""};
  }
  if (running_.size() >= kMaxRunning) {
    return {0, std::to_string(kMaxRunning) + " tasks are running; wait for some to end"};
  }
  const std::string problem =
      event.kind == TaskKind::kDrain ? BeginDrain(event, task) : Begin(event, task);
  if (!problem.empty()) return {0, problem};
  const uint64_t id = ++last_task_;
  task.info.task = id;
  if (event.kind == TaskKind::kDrain) draining_[task.source] = id;
  running_[id] = now_s;
  tasks_.emplace(id, std::move(task));
  return {id, ""};
}

// Why it cannot be; empty: it can.
std::string CopyTasks::Begin(const TaskCreate& event, Task& task) {
  const NodeTable& nodes = inventory_.nodes();
  task.object = inventory_.Find(event.key);
  const bool is_there =
      task.object != kNoIndex && inventory_.objects()[task.object].state == ObjectState::kCommitted;
  if (!is_there) return "there is no such object";
  const Object& object = inventory_.objects()[task.object];
  task.generation = object.generation;
  task.info.key = event.key;
  if (event.kind == TaskKind::kMove) {
    task.slot = nodes.FindNamed(event.source);
    if (task.slot == kNoIndex) return "no node is called '" + event.source + "'";
    if (CopyOn(object, task.slot) == object.copy_count) {
      return "node '" + event.source + "' has no copy of it";
    }
    task.source = nodes[task.slot].id;
    task.info.source = event.source;
    if (event.targets.size() > 1) return "a move has one target";
  }
  for (const std::string& name : event.targets) {
    const uint32_t slot = nodes.FindNamed(name);
    if (slot == kNoIndex) return "no node is called '" + name + "'";
    task.targets.push_back(nodes[slot].id);
  }
  if (event.targets.empty()) task.targets.push_back(0);
  if (event.kind == TaskKind::kCopy && object.copy_count + task.targets.size() > kMaxReplicas) {
    return "an object has at most " + std::to_string(kMaxReplicas) + " copies";
  }
  task.info.total_objects = task.targets.size();
  task.info.total_bytes = task.targets.size() * object.size_bytes;
  return "";
}

std::string CopyTasks::BeginDrain(const TaskCreate& event, Task& task) {
  NodeTable& nodes = inventory_.nodes();
  task.slot = nodes.FindNamed(event.source);
  if (task.slot == kNoIndex) return "no node is called '" + event.source + "'";
  task.source = nodes[task.slot].id;
  task.info.source = event.source;
  task.info.total_objects = nodes[task.slot].policy->count();
  task.info.total_bytes = nodes[task.slot].allocator->used_bytes();
  if (nodes[task.slot].state == NodeState::kOnline) nodes.SetState(task.slot, NodeState::kDraining);
  return "";
}

TaskCreated CopyTasks::Undrain(const std::string& name) {
  const uint32_t slot = inventory_.nodes().FindNamed(name);
  if (slot == kNoIndex) return {0, "no node is called '" + name + "'"};
  const auto found = draining_.find(inventory_.nodes()[slot].id);
  if (found == draining_.end()) return {0, "node '" + name + "' is not being drained"};
  const uint64_t id = found->second;
  if (running_.contains(id)) {
    jobs_.Cancel(id);
    Close(id, TaskState::kCancelled, "");
  } else {
    Reopen(found->first);
  }
  return {id, ""};
}

Result<Tasks> CopyTasks::Query(const TaskQuery& event, double now_s) {
  Tasks answer;
  uint64_t bytes = 0;
  const auto add = [&](uint64_t id, Task& task) {
    if (event.is_cancel && running_.contains(id)) {
      jobs_.Cancel(id);
      Close(id, TaskState::kCancelled, "");
    }
    if (running_.contains(id)) Measure(task);
    task.info.age_s = now_s - task.started_s;
    const TaskInfo& info = task.info;
    bytes += kTaskBytes + info.key.size() + info.source.size() + info.problem.size();
    if (bytes <= kMaxAnswerBytes) answer.tasks.push_back(info);
  };
  if (event.tasks.empty() && !event.is_cancel) {
    for (auto& [id, task] : tasks_) add(id, task);
  }
  for (const uint64_t id : event.tasks) {
    if (const auto found = tasks_.find(id); found != tasks_.end()) add(id, found->second);
  }
  if (bytes > kMaxAnswerBytes) return Status(Code::kInvalidArgument, kAnswerTooLong);
  return answer;
}

bool CopyTasks::has_work(double now_s) const {
  return !jobs_.is_full() &&
         std::ranges::any_of(running_, [now_s](const auto& task) { return task.second <= now_s; });
}

void CopyTasks::Work(int& steps, double now_s) {
  for (auto due = running_.begin(); due != running_.end() && steps > 0;) {
    const auto [id, at_s] = *due++;  // it may end
    if (at_s > now_s || jobs_.is_full()) continue;
    --steps;
    Task& task = tasks_.at(id);
    task.info.kind == TaskKind::kDrain ? Drain(id, task, steps, now_s) : Copy(id, task, now_s);
  }
}

// An object is copied once at a time, so that targets take turns.
void CopyTasks::Copy(uint64_t id, Task& task, double now_s) {
  if (task.jobs > 0) {
    running_[id] = kNever_s;
    return;
  }
  if (task.next == task.targets.size()) return Close(id, TaskState::kDone, "");
  const Object& object = inventory_.objects()[task.object];
  if (object.generation != task.generation || object.state != ObjectState::kCommitted) {
    return Close(id, TaskState::kFailed, "the object is gone");
  }
  CopyJobs::Plan plan{.task = id, .object = task.object, .may_evict = true};
  plan.is_wanted = task.info.kind == TaskKind::kCopy;
  if (task.source != 0) {
    plan.source = task.source;
    const bool is_there = inventory_.nodes().Find(task.source) != kNoIndex;
    if (!is_there) return Close(id, TaskState::kFailed, "its source was lost");
  }
  if (const NodeId target = task.targets[task.next]; target != 0) {
    plan.target = target;
    const bool is_there = inventory_.nodes().Find(target) != kNoIndex;
    if (!is_there) return Close(id, TaskState::kFailed, "its target was lost");
  }
  const auto outcome = jobs_.Start(plan);
  if (outcome == CopyJobs::Outcome::kStarted) {
    ++task.next;
    ++task.jobs;
    running_[id] = kNever_s;
  } else if (outcome == CopyJobs::Outcome::kLater) {
    running_[id] = now_s + kLater_s;
  } else {
    Close(id, TaskState::kFailed, Explain(outcome));
  }
}

void CopyTasks::Drain(uint64_t id, Task& task, int& steps, double now_s) {
  const Allocator& allocator = *inventory_.nodes()[task.slot].allocator;
  while (steps > 0 && !jobs_.is_full()) {
    const uint32_t before = task.cursor;
    const uint32_t object = inventory_.NextObjectOn(task.slot, task.cursor, steps * kLooksAStep);
    steps -= 1 + static_cast<int>((task.cursor - before) / kLooksAStep);
    if (object != kNoIndex) {
      MoveOff(id, task, object, task.cursor - 1);
      steps -= 10;
    } else if (task.cursor >= allocator.block_room()) {
      return EndPass(id, task, now_s);
    }
  }
}

// The copy that is there, or how many copies there are.
size_t CopyTasks::CopyOn(const Object& object, uint32_t slot) const {
  for (size_t copy = 0; copy < object.copy_count; ++copy) {
    if (object.copy(copy)[0].is_retired) continue;
    for (const CopyExtent& extent : object.copy(copy)) {
      if (!extent.is_void() && extent.node == slot) return copy;
    }
  }
  return object.copy_count;
}

bool CopyTasks::HasOther(const Object& object, size_t copy) const {
  for (size_t other = 0; other < object.copy_count; ++other) {
    if (other != copy && inventory_.IsReadable(object, other)) return true;
  }
  return false;
}

// Whether the object is met here in this pass: at the first stripe of its copy on the node.
bool CopyTasks::IsMet(std::span<const CopyExtent> extents, uint32_t slot, uint32_t block) {
  const auto first = std::ranges::find_if(extents, [slot](const CopyExtent& extent) {
    return !extent.is_void() && extent.node == slot;
  });
  return first != extents.end() && first->block == block;
}

// What has a copy elsewhere, and no room for another, may be one copy short.
void CopyTasks::MoveOff(uint64_t id, Task& task, uint32_t index, uint32_t block) {
  const Object& object = inventory_.objects()[index];
  const size_t copy = CopyOn(object, task.slot);
  if (copy == object.copy_count || jobs_.IsCopied(index)) return;  // waits for its readers
  if (!IsMet(object.copy(copy), task.slot, block)) return;
  const auto outcome = jobs_.Start({.task = id, .object = index, .source = task.source});
  if (outcome == CopyJobs::Outcome::kStarted) {
    ++task.jobs;
  } else if (outcome != CopyJobs::Outcome::kNoSource && HasOther(object, copy)) {
    inventory_.RetireCopy(index, copy);
    task.has_moved = true;
  } else if (outcome != CopyJobs::Outcome::kNoSource) {
    ++task.stuck_objects;
    for (const CopyExtent& extent : object.copy(copy)) {
      if (extent.is_void() || extent.node != task.slot) continue;
      task.stuck_bytes += inventory_.nodes()[task.slot].allocator->BytesOf(extent.block);
    }
  }
}

// All of the node was looked at once.
void CopyTasks::EndPass(uint64_t id, Task& task, double now_s) {
  if (task.jobs > 0) {
    running_[id] = kNever_s;
    return;
  }
  const uint64_t used = inventory_.nodes()[task.slot].allocator->used_bytes();
  if (used == 0) return Close(id, TaskState::kDone, "");
  const bool is_vain = !task.has_moved && used <= task.stuck_bytes;
  task.vain_passes = is_vain ? task.vain_passes + 1 : 0;
  task.info.problem = Rest(task);
  if (task.vain_passes >= kVainPasses) return Close(id, TaskState::kFailed, task.info.problem);
  task.cursor = 0;
  task.has_moved = false;
  task.stuck_objects = task.stuck_bytes = 0;
  running_[id] = now_s + kPass_s;
}

std::string CopyTasks::Rest(const Task& task) const {
  const uint64_t used = inventory_.nodes()[task.slot].allocator->used_bytes();
  std::string rest;
  if (task.stuck_objects > 0) {
    rest = std::to_string(task.stuck_objects) + " objects of " + std::to_string(task.stuck_bytes) +
           " bytes have no room on other nodes";
  }
  if (used > task.stuck_bytes) {
    rest += (rest.empty() ? "" : "; ") + std::to_string(used - task.stuck_bytes) +
            " bytes are being moved, read, written or fenced";
  }
  return rest;
}

void CopyTasks::Measure(Task& task) const {
  if (task.info.kind != TaskKind::kDrain) return;
  const uint32_t slot = inventory_.nodes().Find(task.source);
  if (slot == kNoIndex) return;
  const NodeRecord& node = inventory_.nodes()[slot];
  TaskInfo& info = task.info;
  info.total_objects = std::max<uint64_t>(info.total_objects, node.policy->count());
  info.total_bytes = std::max(info.total_bytes, node.allocator->used_bytes());
  info.done_objects = info.total_objects - node.policy->count();
  info.done_bytes = info.total_bytes - node.allocator->used_bytes();
}

void CopyTasks::Ended(const CopyJobs::End& end) {
  const auto found = tasks_.find(end.plan.task);
  if (found == tasks_.end() || !running_.contains(end.plan.task)) return;
  Task& task = found->second;
  --task.jobs;
  running_[found->first] = 0;
  const bool is_drain = task.info.kind == TaskKind::kDrain;
  if (is_drain && end.problem.empty()) {
    task.has_moved = true;
  } else if (is_drain) {
    ++task.stuck_objects;
    task.stuck_bytes += end.bytes;
  } else if (end.problem.empty()) {
    ++task.info.done_objects;
    task.info.done_bytes += task.info.total_bytes / task.info.total_objects;
  } else {
    Close(found->first, TaskState::kFailed, end.problem);
  }
}

// A node that was emptied takes nothing more, until that is undone; one whose draining has ended
// otherwise does again.
void CopyTasks::Close(uint64_t id, TaskState state, std::string problem) {
  Task& task = tasks_.at(id);
  Measure(task);
  task.info.state = state;
  task.info.problem = std::move(problem);
  running_.erase(id);
  over_.push_back(id);
  if (task.info.kind == TaskKind::kDrain && state != TaskState::kDone) Reopen(task.source);
  if (over_.size() > kRemembered) ForgetFirst();
}

// But neither the last nor one whose node still takes nothing for it: who drains that again is
// given this one.
void CopyTasks::ForgetFirst() {
  const auto last = std::prev(over_.end());
  const auto first = std::find_if(over_.begin(), last, [this](uint64_t id) {
    const auto held = draining_.find(tasks_.at(id).source);
    return held == draining_.end() || held->second != id;
  });
  if (first == last) return;
  tasks_.erase(*first);
  over_.erase(first);
}

void CopyTasks::Reopen(NodeId node) {
  draining_.erase(node);
  NodeTable& nodes = inventory_.nodes();
  const uint32_t slot = nodes.Find(node);
  if (slot == kNoIndex || nodes[slot].state != NodeState::kDraining) return;
  nodes.SetState(slot, NodeState::kOnline);
}

void CopyTasks::Lost(NodeId node) {
  const auto found = draining_.find(node);
  if (found == draining_.end()) return;
  const uint64_t id = found->second;
  draining_.erase(found);
  if (running_.contains(id)) Close(id, TaskState::kFailed, "the node was lost before it was empty");
}

}  // namespace mooncake::store
