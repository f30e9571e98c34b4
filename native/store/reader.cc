#include "store/reader.h"

#include <algorithm>
#include <functional>
#include <limits>
#include <utility>

namespace mooncake::store {
namespace {

constexpr uint64_t kBounceBytes = 16 << 20;  // a round takes no more once it has so much

}  // namespace

struct Reader::Task {
  const Request* request;
  uint32_t first_copy = 0;
  uint32_t tried = 0;  // copies
  bool is_done = false;
  bool is_missed = false;
  bool was_wrong = false;  // on the copy that is read now
  size_t number = 0;       // in the round
};

Result<std::shared_ptr<Reader>> Reader::Make(std::shared_ptr<Context> context,
                                             const Session::Identity& owner,
                                             std::span<const std::string_view> keys,
                                             std::vector<Answer> answers) {
  std::shared_ptr<Reader> reader(new Reader(std::move(context), owner, keys, std::move(answers)));
  MC_RETURN_IF_ERROR(reader->TakeItems());
  return reader;
}

Reader::Reader(std::shared_ptr<Context> context, const Session::Identity& owner,
               std::span<const std::string_view> keys, std::vector<Answer> answers)
    : context_(std::move(context)), owner_(owner), keys_(keys), answers_(std::move(answers)) {
  for (Answer& answer : answers_) {
    if (answer.reply.lease == 0) continue;
    const double end_s =
        answer.is_pin ? std::numeric_limits<double>::infinity() : answer.asked_s + owner_.lease_s;
    answer.clock = context_->session.Hold(owner_.id, answer.reply.lease, end_s, answer.is_pin);
  }
}

Status Reader::TakeItems() {
  size_t key = 0;
  items_.reserve(keys_.size());
  for (uint32_t number = 0; number < answers_.size(); ++number) {
    MC_RETURN_IF_ERROR(TakeAnswer(number, key));
  }
  return Status::Ok();
}

Status Reader::TakeAnswer(uint32_t number, size_t& key) {
  const Status impossible(Code::kWire, "the master described an object that cannot be");
  const LookupReply& reply = answers_[number].reply;
  std::span<const Placement> placements(reply.placements);
  std::span<const uint32_t> checksums(reply.checksums);
  for (const Placement& placement : placements) {
    if (placement.node >= reply.nodes.size()) return impossible;
  }
  for (const LookupReply::Item& item : reply.items) {
    if (++key > keys_.size()) return impossible;
    Item& known = items_.emplace_back();
    if (!item.found) continue;
    known = {true,
             item.has_checksums,
             {item.size_bytes, item.part_bytes, item.stripe_bytes},
             item.generation,
             number,
             item.copies};
    const uint64_t extents = known.shape.stripe_count() * item.copies;
    const uint64_t chunks = item.has_checksums ? known.shape.chunk_count() : 0;
    const bool is_possible = known.shape.IsPossible() && item.copies > 0 &&
                             extents <= placements.size() && chunks <= checksums.size();
    if (!is_possible) return impossible;
    known.extents = placements.first(extents);
    known.checksums = checksums.first(chunks);
    placements = placements.subspan(extents);
    checksums = checksums.subspan(chunks);
  }
  return Status::Ok();
}

size_t Reader::LeadingCount() const {
  return std::ranges::find(items_, false, &Item::found) - items_.begin();
}

void Reader::Close() {
  if (is_closed_.exchange(true)) return;
  for (const Answer& answer : answers_) {
    if (answer.reply.lease != 0) context_->session.Release(owner_.id, answer.reply.lease);
  }
}

Status Reader::CheckOpen() const {
  if (is_closed_) return {Code::kClosed, "the reader was closed"};
  return context_->session.CheckOpen();
}

Status Reader::ClockValidity(const LeaseClock* clock, double now_s) const {
  if (is_closed_) return {Code::kClosed, "the reader was closed"};
  if (context_->session.epoch() != owner_.epoch) {
    return {Code::kStaleEpoch, "the descriptor is of an earlier master; look the key up again"};
  }
  if (clock != nullptr && now_s < clock->end_s.load()) return Status::Ok();
  return {Code::kLeaseExpired, "the lease has ended; look the key up again"};
}

Status Reader::ValidityOf(const Item& item, double now_s) const {
  return ClockValidity(answers_[item.answer].clock.get(), now_s);
}

Status Reader::Validity() const {
  MC_RETURN_IF_ERROR(CheckOpen());
  const double now_s = MonotonicSeconds();
  for (const Answer& answer : answers_) {
    MC_RETURN_IF_ERROR(ClockValidity(answer.clock.get(), now_s));
  }
  return Status::Ok();
}

Result<bool> Reader::ReadPart(uint64_t part, std::span<const Request> requests) {
  std::vector<Request> ranges(requests.begin(), requests.end());
  for (Request& request : ranges) {
    MC_RETURN_IF_ERROR(CheckRequest({request.index, 0, {}}));
    const Shape& shape = items_[request.index].shape;
    if (part >= shape.part_count()) {
      return Status(Code::kInvalidArgument, "there is no part " + std::to_string(part));
    }
    const uint64_t length = TotalLength(request.memory);
    if (length != shape.PartBytes(part)) {
      return Status(Code::kInvalidArgument, "the memory has " + std::to_string(length) +
                                                " bytes, the part " +
                                                std::to_string(shape.PartBytes(part)));
    }
    request.offset = shape.PartOffset(part);
  }
  const auto read = Read(ranges);
  if (!read.ok()) return read.status();
  return std::ranges::all_of(read.value(), std::identity());
}

Status Reader::CheckRequest(const Request& request) const {
  if (request.index >= items_.size() || !items_[request.index].found) {
    return {Code::kInvalidArgument, "object " + std::to_string(request.index) + " of " +
                                        std::to_string(items_.size()) + " is not there"};
  }
  const uint64_t size_bytes = items_[request.index].shape.size_bytes;
  const uint64_t length = TotalLength(request.memory);
  if (request.offset <= size_bytes && length <= size_bytes - request.offset) return Status::Ok();
  return {Code::kInvalidArgument,
          std::to_string(length) + " bytes at offset " + std::to_string(request.offset) +
              " lie outside the object of " + std::to_string(size_bytes) + " bytes"};
}

Result<std::vector<bool>> Reader::Read(std::span<const Request> requests) {
  MC_RETURN_IF_ERROR(CheckOpen());
  std::vector<Task> tasks;
  tasks.reserve(requests.size());
  for (const Request& request : requests) {
    MC_RETURN_IF_ERROR(CheckRequest(request));
    tasks.push_back({&request, FirstCopy(items_[request.index])});
  }
  MC_RETURN_IF_ERROR(RunTasks(tasks));
  std::vector<bool> done;
  done.reserve(tasks.size());
  for (const Task& task : tasks) done.push_back(task.is_done);
  const bool is_whole = std::ranges::all_of(done, std::identity());
  if (!is_whole) MC_RETURN_IF_ERROR(CheckOpen());  // it was no miss
  return done;
}

// One on this host if there is any; else all take their turns.
uint32_t Reader::FirstCopy(const Item& item) const {
  if (item.copies == 1) return 0;
  const uint64_t stripes = item.shape.stripe_count();
  for (uint32_t copy = 0; copy < item.copies; ++copy) {
    const NodeAddress& node = NodeOf(item, item.extents[copy * stripes]);
    if (context_->segments.IsNear(node)) return copy;
  }
  return context_->turns++ % item.copies;
}

ObjectHeader Reader::HeaderOf(size_t index, uint64_t stripe) const {
  const Item& item = items_[index];
  return {item.generation,       owner_.epoch,          item.shape.size_bytes,
          item.shape.part_bytes, KeyHash(keys_[index]), stripe};
}

// Round by round; what fails on one copy is tried on the next, until no copy is left.
Status Reader::RunTasks(std::vector<Task>& tasks) {
  const bool verifies = context_->has_checksums;
  std::vector<Task*> running;
  running.reserve(tasks.size());
  const auto has_ended = [](const Task& task) { return task.is_done || task.is_missed; };
  while (!std::ranges::all_of(tasks, has_ended)) {
    ReadRound round(*context_, verifies, tasks.size());
    running.clear();
    const double before_s = MonotonicSeconds();
    for (Task& task : tasks) {
      if (has_ended(task) || round.bounce_bytes() > kBounceBytes) continue;
      const Item& item = items_[task.request->index];
      const bool is_valid = ValidityOf(item, before_s).ok();
      if (!is_valid) ++context_->counters.stale;
      task.is_missed = !is_valid || task.tried == item.copies;
      if (task.is_missed) continue;
      const uint32_t copy = (task.first_copy + task.tried) % item.copies;
      const uint64_t stripes = item.shape.stripe_count();
      const ReadSource source{&item.shape, item.extents.subspan(copy * stripes, stripes),
                              answers_[item.answer].reply.nodes,
                              verifies ? item.checksums : std::span<const uint32_t>(),
                              HeaderOf(task.request->index, 0)};
      task.number = round.Add(source, task.request->offset, task.request->memory);
      running.push_back(&task);
    }
    round.Run();
    const double after_s = MonotonicSeconds();
    for (Task* task : running) {
      MC_RETURN_IF_ERROR(Settle(*task, round.OutcomeOf(task->number), after_s));
    }
  }
  return Status::Ok();
}

// An error only when the arguments are wrong. What is wrong is read once more before its copy is
// blamed: it may have changed on its way. `now_s` is a time after the round.
Status Reader::Settle(Task& task, const ReadRound::Outcome& outcome, double now_s) {
  if (IsCallersFault(outcome.status)) return outcome.status;
  const uint64_t index = task.request->index;
  const bool was_wrong = std::exchange(task.was_wrong, false);
  task.was_wrong = outcome.status.ok() && !outcome.is_right && !was_wrong;
  if (task.was_wrong) return Status::Ok();
  ++task.tried;
  if (!outcome.status.ok()) {
    ++context_->counters.unreachable;
    context_->counters.corrupt += was_wrong;
    // A process whose id was revoked takes a new one.
    if (outcome.status.code() == Code::kFenced) context_->session.Rotate(outcome.peer_id);
  } else if (!outcome.is_right) {
    ReportCorrupt(index, outcome.wrong);
  } else {
    task.is_done = ValidityOf(items_[index], now_s).ok();
    context_->counters.corrupt += was_wrong;
  }
  return Status::Ok();
}

void Reader::ReportCorrupt(size_t index, NodeId node) {
  if (!ValidityOf(items_[index], MonotonicSeconds()).ok()) {
    ++context_->counters.stale;  // it was lawfully reused
    return;
  }
  ++context_->counters.corrupt;
  Session& session = context_->session;
  const CorruptReport report{keys_[index], items_[index].generation, node};
  (void)session.master().Notify(MessageType::kCorrupt, report, session.CallDeadline());
}

}  // namespace mooncake::store
