#include "store/writer.h"

#include "store/registration.h"

namespace mooncake::store {

Writer::Writer(std::shared_ptr<Context> context, const Session::Identity& owner,
               const PutStart::Item& item, uint64_t generation, std::vector<ExtentAddress> copies)
    : context_(std::move(context)),
      owner_(owner),
      key_(item.key),
      put_id_(item.put_id),
      generation_(generation),
      size_bytes_(item.size_bytes),
      part_bytes_(item.part_bytes),
      part_done_(PartCount(size_bytes_, part_bytes_)),
      part_taken_(part_done_.size()),
      checksums_(ChunkCount(size_bytes_, part_bytes_)) {
  for (ExtentAddress& extent : copies) copies_.push_back({std::move(extent), false, false});
}

Writer::~Writer() { Abort(); }

Status Writer::WriteHeaders() {
  const HeaderBytes header =
      EncodeHeader({generation_, owner_.epoch, size_bytes_, part_bytes_, KeyHash(key_)});
  const Registration registered(context_->session.engine(), header.data(), header.size());
  MC_RETURN_IF_ERROR(registered.status());
  const Range range{reinterpret_cast<uint64_t>(header.data()), header.size()};
  MC_RETURN_IF_ERROR(Enter(0, 0));
  const Status status = WriteCopies(0, {&range, 1});
  Leave(0, 0, status.ok());
  return status;
}

Status Writer::WritePart(uint64_t part, std::span<const Range> memory) {
  if (part >= part_done_.size()) {
    return {Code::kInvalidArgument, "part " + std::to_string(part) + " of an object of " +
                                        std::to_string(part_done_.size()) + " parts"};
  }
  MC_RETURN_IF_ERROR(Enter(part, 1));
  const Status status = Store(PartOf(size_bytes_, part_bytes_, part), memory);
  Leave(part, 1, status.ok());
  return status;
}

Status Writer::WriteAll(std::span<const Range> memory) {
  MC_RETURN_IF_ERROR(Enter(0, part_done_.size()));
  const Status status = Store(WholeOf(size_bytes_, part_bytes_), memory);
  Leave(0, part_done_.size(), status.ok());
  return status;
}

Status Writer::Enter(uint64_t first_part, uint64_t parts) {
  std::lock_guard lock(mutex_);
  if (phase_ != Phase::kOpen) return {Code::kClosed, "the writer was committed or aborted"};
  for (uint64_t part = first_part; part < first_part + parts; ++part) {
    if (part_taken_[part]) {
      return {Code::kInvalidArgument, "part " + std::to_string(part) + " was written before"};
    }
  }
  for (uint64_t part = first_part; part < first_part + parts; ++part) part_taken_[part] = true;
  ++writing_;
  return Status::Ok();
}

void Writer::Leave(uint64_t first_part, uint64_t parts, bool is_done) {
  std::lock_guard lock(mutex_);
  for (uint64_t part = first_part; part < first_part + parts; ++part) {
    part_done_[part] = is_done;
    part_taken_[part] = is_done;
  }
  if (--writing_ == 0) quiet_.notify_all();
}

Status Writer::Store(const Section& section, std::span<const Range> memory) {
  if (TotalLength(memory) != section.bytes) {
    return {Code::kInvalidArgument, "the memory holds " + std::to_string(TotalLength(memory)) +
                                        " bytes, the part has " + std::to_string(section.bytes)};
  }
  MC_RETURN_IF_ERROR(WriteCopies(kHeaderBytes + section.offset, memory));
  const auto checksums = ChecksumsOf(memory, section.chunks);
  std::lock_guard lock(mutex_);
  std::copy(checksums.begin(), checksums.end(), checksums_.begin() + section.first_chunk);
  return Status::Ok();
}

// Ok while at least one copy has it.
Status Writer::WriteCopies(uint64_t offset, std::span<const Range> memory) {
  for (size_t at = 0; at < copies_.size(); ++at) {
    const Status status = WriteCopy(at, offset, memory);
    if (IsCallersFault(status)) return status;
  }
  std::lock_guard lock(mutex_);
  return Failure();
}

Status Writer::WriteCopy(size_t at, uint64_t offset, std::span<const Range> memory) {
  ExtentAddress extent;
  {
    std::lock_guard lock(mutex_);
    if (copies_[at].is_lost) return Status::Ok();
    extent = copies_[at].extent;
  }
  const Deadline deadline = context_->DataDeadline(TotalLength(memory));
  auto segment = context_->segments.Open(extent, owner_.peer_id, deadline);
  if (!segment.ok()) {
    LoseCopy(at, segment.status(), false);  // no byte of this was sent
    return Status::Ok();
  }
  std::vector<Piece> pieces;
  AppendPieces(memory, extent.offset + offset, pieces);
  if (pieces.empty()) return Status::Ok();
  Engine& engine = context_->session.engine();
  const Status status = engine.Execute(Op::kWrite, segment.value(), pieces, {deadline});
  if (!status.ok() && !IsCallersFault(status)) {
    context_->segments.Drop(extent.node, status);
    LoseCopy(at, status, true);
  }
  return status;
}

void Writer::LoseCopy(size_t at, const Status& status, bool is_dirty) {
  std::lock_guard lock(mutex_);
  if (first_failure_.ok()) first_failure_ = status;
  copies_[at].is_lost = true;
  copies_[at].is_dirty |= is_dirty;
  must_rotate_ |= is_dirty || status.code() == Code::kFenced;
}

// REQUIRES: mutex_ is held.
Status Writer::Failure() const {
  for (const Target& copy : copies_) {
    if (!copy.is_lost) return Status::Ok();
  }
  // Fenced here, or gone there: another try starts afresh and may well succeed.
  const Code code = first_failure_.code();
  const bool is_past = code == Code::kFenced || code == Code::kNotFound || code == Code::kClosed;
  return {is_past ? Code::kUnavailable : code,
          "no copy could be written: " + first_failure_.message()};
}

void Writer::WaitUntilQuiet(std::unique_lock<std::mutex>& lock) {
  quiet_.wait(lock, [this] { return writing_ == 0; });
}

Status Writer::Commit() {
  PutEnd end{owner_.id, {}, {}};
  MC_RETURN_IF_ERROR(PrepareEnd(end));
  Session& session = context_->session;
  auto reply =
      session.master().Call<PutEndReply>(MessageType::kPutEnd, end, session.CallDeadline());
  if (!reply.ok()) {
    FailEnd();
    return reply.status();
  }
  if (!reply.value().is_known) session.Forget(owner_.id);
  const bool has_outcome = reply.value().is_known && reply.value().outcomes.size() == 1;
  return FinishEnd(has_outcome ? reply.value().outcomes[0] : EndOutcome::kUnknown);
}

Status Writer::PrepareEnd(PutEnd& end) {
  std::unique_lock lock(mutex_);
  WaitUntilQuiet(lock);  // another thread may end it meanwhile
  if (phase_ != Phase::kOpen) return {Code::kClosed, "the writer was committed or aborted"};
  MC_RETURN_IF_ERROR(Failure());
  for (size_t part = 0; part < part_done_.size(); ++part) {
    if (!part_done_[part] && size_bytes_ > 0) {
      return {Code::kInvalidArgument, "part " + std::to_string(part) + " was not written"};
    }
  }
  phase_ = Phase::kEnding;
  PutEnd::Item& item = end.items.emplace_back(PutEnd::Item{put_id_, key_, generation_, {}, {}});
  end.checksums.insert(end.checksums.end(), checksums_.begin(), checksums_.end());
  for (uint64_t at = 0; at < copies_.size(); ++at) {
    if (!copies_[at].is_lost) continue;
    item.lost.push_back(at);
    if (copies_[at].is_dirty) item.dirty.push_back(copies_[at].extent.node);
  }
  return Status::Ok();
}

Status Writer::FinishEnd(EndOutcome outcome) {
  {
    std::lock_guard lock(mutex_);
    phase_ = Phase::kEnded;
  }
  RotateIfRefused();
  if (outcome == EndOutcome::kDone) return Status::Ok();
  return {Code::kUnavailable,
          "the master has given up this put: the session or the nodes of its "
          "copies were lost meanwhile"};
}

void Writer::FailEnd() {
  std::lock_guard lock(mutex_);
  phase_ = Phase::kEnded;
  context_->session.AbortLater(owner_.id, AbortItem());
}

void Writer::Abort() {
  {
    std::unique_lock lock(mutex_);
    WaitUntilQuiet(lock);
    if (phase_ != Phase::kOpen) return;
    phase_ = Phase::kEnded;
  }
  Session& session = context_->session;
  const PutAbort abort{owner_.id, {AbortItem()}};
  auto reply =
      session.master().Call<PutEndReply>(MessageType::kPutAbort, abort, session.CallDeadline());
  if (!reply.ok()) session.AbortLater(owner_.id, AbortItem());
  RotateIfRefused();
}

PutAbort::Item Writer::AbortItem() const {
  PutAbort::Item item{put_id_, {}};
  for (const Target& copy : copies_) {
    if (copy.is_dirty) item.dirty.push_back(copy.extent.node);
  }
  return item;
}

// Its node will fence the id; a new one now spares later writes the refusal.
void Writer::RotateIfRefused() {
  if (must_rotate_) context_->session.Rotate(owner_.peer_id);
}

}  // namespace mooncake::store
