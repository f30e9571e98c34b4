#include "store/reader.h"

#include <map>

#include "store/registration.h"

namespace mooncake::store {

Reader::Reader(std::shared_ptr<Context> context, const Session::Identity& owner, uint64_t lease,
               double asked_s, std::vector<std::string> keys, std::vector<Item> items)
    : context_(std::move(context)),
      owner_(owner),
      lease_(lease),
      keys_(std::move(keys)),
      items_(std::move(items)) {
  if (lease_ != 0) clock_ = context_->session.Hold(owner_.id, lease_, asked_s + owner_.lease_s);
}

void Reader::Close() {
  if (is_closed_.exchange(true) || lease_ == 0) return;
  context_->session.Release(owner_.id, lease_);
}

Status Reader::Validity() const {
  if (is_closed_) return {Code::kClosed, "the reader was closed"};
  if (context_->session.epoch() != owner_.epoch) {
    return {Code::kStaleEpoch, "the descriptor is of an earlier master; look the key up again"};
  }
  if (clock_ != nullptr && MonotonicSeconds() < clock_->end_s.load()) return Status::Ok();
  return {Code::kLeaseExpired, "the lease has ended; look the key up again"};
}

Result<bool> Reader::ReadPart(uint64_t part, std::span<const Request> requests) {
  std::vector<Task> tasks;
  for (const Request& request : requests) {
    if (request.index >= items_.size()) {
      return Status(Code::kInvalidArgument, "object " + std::to_string(request.index) + " of " +
                                                std::to_string(items_.size()));
    }
    const Item& item = items_[request.index];
    if (part >= PartCount(item.size_bytes, item.part_bytes)) {
      return Status(Code::kInvalidArgument, "there is no part " + std::to_string(part));
    }
    auto task = MakeTask(request, PartOf(item.size_bytes, item.part_bytes, part));
    if (!task.ok()) return task.status();
    tasks.push_back(std::move(task).value());
  }
  MC_RETURN_IF_ERROR(RunTasks(tasks));
  return std::all_of(tasks.begin(), tasks.end(), [](const Task& task) { return task.is_done; });
}

Result<std::vector<bool>> Reader::ReadAll(std::span<const Request> requests) {
  std::vector<Task> tasks;
  for (const Request& request : requests) {
    const Item& item = items_.at(request.index);
    auto task = MakeTask(request, WholeOf(item.size_bytes, item.part_bytes));
    if (!task.ok()) return task.status();
    tasks.push_back(std::move(task).value());
  }
  MC_RETURN_IF_ERROR(RunTasks(tasks));
  std::vector<bool> done;
  for (const Task& task : tasks) done.push_back(task.is_done);
  return done;
}

Result<Reader::Task> Reader::MakeTask(const Request& request, const Section& section) const {
  const uint64_t length = TotalLength(request.memory);
  if (length == section.bytes) return Task{&request, section, 0, false};
  return Status(Code::kInvalidArgument, "the memory has " + std::to_string(length) +
                                            " bytes, the part " + std::to_string(section.bytes));
}

const ExtentAddress* Reader::CopyOf(const Task& task) const {
  const auto& copies = items_[task.request->index].copies;
  return task.is_done || task.copy >= copies.size() ? nullptr : &copies[task.copy];
}

// Reads node by node; what fails on one is tried on the next copy's, until no copy is left.
Status Reader::RunTasks(std::vector<Task>& tasks) {
  while (!tasks.empty()) {
    if (!Validity().ok()) {
      ++context_->counters.stale;
      for (Task& task : tasks) task.is_done = false;
      return Status::Ok();
    }
    std::map<NodeId, std::vector<Task*>> by_node;
    for (Task& task : tasks) {
      if (const ExtentAddress* copy = CopyOf(task)) by_node[copy->node].push_back(&task);
    }
    if (by_node.empty()) return Status::Ok();
    for (auto& [node, group] : by_node) {
      const Status status = RunOnNode(*CopyOf(*group[0]), group);
      if (IsCallersFault(status)) return status;
      for (Task* task : group) task->copy += !task->is_done;
    }
  }
  return Status::Ok();
}

Status Reader::RunOnNode(const ExtentAddress& node, std::span<Task*> tasks) {
  std::vector<HeaderBytes> headers(tasks.size());
  const Registration registered(context_->session.engine(), headers.data(),
                                headers.size() * kHeaderBytes);
  MC_RETURN_IF_ERROR(registered.status());
  std::vector<Piece> payload, heads;
  uint64_t bytes = 0;
  for (size_t at = 0; at < tasks.size(); ++at) {
    const uint64_t offset = CopyOf(*tasks[at])->offset;
    AppendPieces(tasks[at]->request->memory, offset + kHeaderBytes + tasks[at]->section.offset,
                 payload);
    heads.push_back({reinterpret_cast<uint64_t>(headers[at].data()), offset, kHeaderBytes});
    bytes += tasks[at]->section.bytes;
  }
  const Deadline deadline = context_->DataDeadline(bytes);
  Engine& engine = context_->session.engine();
  const uint64_t peer_id = engine.peer_id();
  auto segment = context_->segments.Open(node, peer_id, deadline);
  if (!segment.ok()) return Failed(segment.status(), peer_id);
  Status status;
  if (!payload.empty()) status = engine.Execute(Op::kRead, segment.value(), payload, {deadline});
  // Only after the payload: a new owner of the extent writes its header first.
  if (status.ok()) status = engine.Execute(Op::kRead, segment.value(), heads, {deadline});
  if (!status.ok()) {
    if (!IsCallersFault(status)) context_->segments.Drop(node.node, status);
    return Failed(status, peer_id);
  }
  for (size_t at = 0; at < tasks.size(); ++at) {
    tasks[at]->is_done = Verify(*tasks[at], headers[at]) && Validity().ok();
  }
  return Status::Ok();
}

// Counts a fault of the world. A process whose id was revoked takes a new one.
Status Reader::Failed(const Status& status, uint64_t peer_id) {
  if (!IsCallersFault(status)) ++context_->counters.unreachable;
  if (status.code() == Code::kFenced) context_->session.Rotate(peer_id);
  return status;
}

bool Reader::Verify(const Task& task, const HeaderBytes& header) {
  const uint64_t index = task.request->index;
  const Item& item = items_[index];
  const ObjectHeader expected{item.generation, owner_.epoch, item.size_bytes, item.part_bytes,
                              KeyHash(keys_[index])};
  bool is_right = IsHeader(header, expected);
  if (is_right) {
    const auto checksums = ChecksumsOf(task.request->memory, task.section.chunks);
    is_right = std::equal(checksums.begin(), checksums.end(),
                          item.checksums.begin() + task.section.first_chunk);
  }
  if (is_right) return true;
  if (!Validity().ok()) {
    ++context_->counters.stale;  // it was lawfully reused
    return false;
  }
  ++context_->counters.corrupt;
  Session& session = context_->session;
  (void)session.master().Notify(MessageType::kCorrupt,
                                CorruptReport{keys_[index], item.generation, 0},
                                session.CallDeadline());
  return false;
}

}  // namespace mooncake::store
