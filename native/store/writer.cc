#include "store/writer.h"

#include <algorithm>
#include <cstring>
#include <optional>

namespace mooncake::store {
namespace {

void AddTo(std::vector<NodeId>& nodes, NodeId node) {
  if (std::ranges::find(nodes, node) == nodes.end()) nodes.push_back(node);
}

void Append(const std::vector<NodeId>& more, std::vector<NodeId>& nodes) {
  nodes.insert(nodes.end(), more.begin(), more.end());
}

}  // namespace

Writer::Writer(std::shared_ptr<Context> context, const Session::Identity& owner, std::string key,
               Grant grant)
    : context_(std::move(context)),
      owner_(owner),
      key_(std::move(key)),
      grant_(std::move(grant)),
      stripes_(grant_.shape.stripe_count()),
      copies_(grant_.extents.size() / stripes_),
      checksums_(grant_.has_checksums ? grant_.shape.chunk_count() : 0),
      has_header_(stripes_) {}

Writer::~Writer() { Abort(); }

Status Writer::Write(uint64_t offset, std::span<const Range> memory) {
  Haul haul(*context_, Op::kWrite, owner_.peer_id, grant_.has_checksums, 2);
  Job job;
  MC_RETURN_IF_ERROR(Begin(offset, memory, haul, job));
  haul.Run();
  return Settle(haul, job);
}

Status Writer::WritePart(uint64_t part, std::span<const Range> memory) {
  const Shape& shape = grant_.shape;
  if (part >= shape.part_count()) {
    return {Code::kInvalidArgument, "part " + std::to_string(part) + " of an object of " +
                                        std::to_string(shape.part_count()) + " parts"};
  }
  if (TotalLength(memory) != shape.PartBytes(part)) {
    return {Code::kInvalidArgument, "the memory holds " + std::to_string(TotalLength(memory)) +
                                        " bytes, the part has " +
                                        std::to_string(shape.PartBytes(part))};
  }
  return Write(shape.PartOffset(part), memory);
}

const Placement& Writer::ExtentOf(size_t copy, uint64_t stripe) const {
  return grant_.extents[copy * stripes_ + stripe];
}

Status Writer::Begin(uint64_t offset, std::span<const Range> memory, Haul& haul, Job& job) {
  const uint64_t length = TotalLength(memory);
  const Shape& shape = grant_.shape;
  if (offset > shape.size_bytes || length > shape.size_bytes - offset) {
    return {Code::kInvalidArgument, std::to_string(length) + " bytes at offset " +
                                        std::to_string(offset) + " lie outside the object of " +
                                        std::to_string(shape.size_bytes) + " bytes"};
  }
  MC_RETURN_IF_ERROR(context_->session.CheckOpen());
  job = {.begin = offset, .end = offset + length};
  const std::lock_guard lock(mutex_);
  if (phase_ != Phase::kOpen) return {Code::kClosed, "the writer was committed or aborted"};
  if (const auto taken = coverage_.Claim(job.begin, job.end)) {
    return {Code::kInvalidArgument, "byte " + std::to_string(*taken) + " was written before"};
  }
  ++writing_;
  const bool is_nothing = length == 0 && shape.size_bytes > 0;
  const uint64_t last = length == 0 ? 0 : shape.StripeOf(job.end - 1);
  for (uint64_t at = shape.StripeOf(offset); !is_nothing && at <= last; ++at) {
    if (!has_header_[at]) job.stripes.push_back(at);
    has_header_[at] = true;
  }
  ForEachCut(shape, memory, offset,
             [&](const Chunk& chunk, uint64_t address, uint64_t at, uint64_t bytes) {
               job.cuts.push_back({chunk, address, at, bytes});
             });
  const auto headers = EncodeHeaders(job.stripes, haul.arena());
  for (size_t copy = 0; copy < copies_.size(); ++copy) AddCopy(copy, headers, haul, job);
  return Status::Ok();
}

// REQUIRES: mutex_ is held.
void Writer::AddCopy(size_t copy, std::span<uint8_t* const> headers, Haul& haul, Job& job) const {
  if (copies_[copy].is_lost) {
    job.slots.resize(job.slots.size() + headers.size() + job.cuts.size());
    return;
  }
  for (size_t at = 0; at < headers.size(); ++at) {
    const Placement& extent = ExtentOf(copy, job.stripes[at]);
    const auto address = reinterpret_cast<uint64_t>(headers[at]);
    job.slots.push_back(haul.AddHeader(NodeOf(extent), address, extent.offset));
  }
  const Shape& shape = grant_.shape;
  for (const Job::Cut& cut : job.cuts) {
    const Placement& extent = ExtentOf(copy, shape.StripeOf(cut.offset));
    job.slots.push_back(haul.Add(NodeOf(extent), cut.address,
                                 extent.offset + shape.InExtent(cut.offset), cut.length));
  }
}

std::vector<uint8_t*> Writer::EncodeHeaders(std::span<const uint64_t> stripes, Arena& arena) const {
  std::vector<uint8_t*> headers;
  if (stripes.empty()) return headers;
  ObjectHeader header{grant_.generation,       owner_.epoch,  grant_.shape.size_bytes,
                      grant_.shape.part_bytes, KeyHash(key_), 0};
  for (const uint64_t stripe : stripes) {
    header.stripe = stripe;
    const HeaderBytes bytes = EncodeHeader(header);
    headers.push_back(arena.Take(bytes.size()));
    std::memcpy(headers.back(), bytes.data(), bytes.size());
  }
  return headers;
}

Status Writer::Settle(const Haul& haul, const Job& job) {
  const std::lock_guard lock(mutex_);
  const Status status = TakeResults(haul, job);
  if (!status.ok()) {
    coverage_.Return(job.begin, job.end);
    for (const uint64_t stripe : job.stripes) has_header_[stripe] = false;
  }
  if (--writing_ == 0) quiet_.notify_all();
  return status;
}

bool Writer::is_given_up() {
  const std::lock_guard lock(mutex_);
  return is_refused_ || !HasCopy();
}

size_t Writer::copy_count() {
  const std::lock_guard lock(mutex_);
  return std::ranges::count(copies_, false, &Copy::is_lost);
}

// REQUIRES: mutex_ is held.
bool Writer::HasCopy() const { return !std::ranges::all_of(copies_, &Copy::is_lost); }

// Ok while at least one copy has it. A caller's fault to any of them means that all of it may be
// written again, so its checksums are added only when there was none. What became of the others
// counts all the same, even of those that another write has lost meanwhile: bytes may be under way.
// REQUIRES: mutex_ is held.
Status Writer::TakeResults(const Haul& haul, const Job& job) {
  std::optional<size_t> written;
  Status fault;
  for (size_t copy = 0; copy < copies_.size(); ++copy) {
    const Status status = ResultOf(copy, haul, job);
    if (fault.ok()) fault = status;
    if (status.ok() && !copies_[copy].is_lost && !written) written = copy;
  }
  MC_RETURN_IF_ERROR(fault);
  if (written && grant_.has_checksums) AddChecksums(*written, haul, job);
  return Failure();
}

// The first fault of the caller's.
// REQUIRES: mutex_ is held.
Status Writer::ResultOf(size_t copy, const Haul& haul, const Job& job) {
  const size_t pieces = job.stripes.size() + job.cuts.size();
  Copy& known = copies_[copy];
  Status fault;
  for (const Haul::Slot slot : std::span(job.slots).subspan(copy * pieces, pieces)) {
    if (!slot.is_used() || haul.StatusOf(slot).ok()) continue;
    const Status& status = haul.StatusOf(slot);
    if (IsCallersFault(status)) {
      if (fault.ok()) fault = status;
      continue;
    }
    if (first_failure_.ok()) first_failure_ = status;
    known.is_lost = true;
    must_rotate_ |= status.is_dirty() || status.code() == Code::kFenced;
    AddTo(known.failed, haul.NodeOf(slot));
    if (status.is_dirty()) AddTo(known.dirty, haul.NodeOf(slot));
  }
  return fault;
}

// REQUIRES: mutex_ is held.
void Writer::AddChecksums(size_t copy, const Haul& haul, const Job& job) {
  size_t slot = copy * (job.stripes.size() + job.cuts.size()) + job.stripes.size();
  for (const Job::Cut& cut : job.cuts) {
    checksums_.Add(cut.chunk, cut.offset, cut.length, haul.ChecksumOf(job.slots[slot++]));
  }
}

// REQUIRES: mutex_ is held.
Status Writer::Failure() const {
  if (HasCopy()) return Status::Ok();
  MC_RETURN_IF_ERROR(context_->session.CheckOpen());
  // Fenced here, or gone there: another try starts afresh and may well succeed.
  const Code code = first_failure_.code();
  const bool is_past = code == Code::kFenced || code == Code::kNotFound || code == Code::kClosed;
  return {is_past ? Code::kUnavailable : code,
          "no copy could be written: " + first_failure_.message()};
}

// REQUIRES: mutex_ is held.
Status Writer::CheckWhole() const {
  const auto gap = coverage_.FirstGap(grant_.shape.size_bytes);
  if (!gap && checksums_.IsWhole()) return Status::Ok();
  if (!gap) return {Code::kChecksumMismatch, "not all that was written has a checksum"};
  const bool has_parts = grant_.shape.part_count() > 1;
  const std::string part =
      has_parts ? " (in part " + std::to_string(*gap / grant_.shape.part_bytes) + ")" : "";
  return {Code::kInvalidArgument, "byte " + std::to_string(*gap) + part + " of " +
                                      std::to_string(grant_.shape.size_bytes) + " was not written"};
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

// An empty object has a header all the same.
Status Writer::WriteEmpty() {
  {
    const std::lock_guard lock(mutex_);
    if (grant_.shape.size_bytes > 0 || has_header_[0]) return Status::Ok();
  }
  return Write(0, {});
}

Status Writer::PrepareEnd(PutEnd& end) {
  MC_RETURN_IF_ERROR(context_->session.CheckOpen());
  MC_RETURN_IF_ERROR(WriteEmpty());
  std::unique_lock lock(mutex_);
  WaitUntilQuiet(lock);  // another thread may end it meanwhile
  if (phase_ != Phase::kOpen) return {Code::kClosed, "the writer was committed or aborted"};
  MC_RETURN_IF_ERROR(Failure());
  MC_RETURN_IF_ERROR(CheckWhole());
  phase_ = Phase::kEnding;
  const auto& sums = checksums_.all();
  PutEnd::Item& item = end.items.emplace_back(
      PutEnd::Item{grant_.put_id, key_, grant_.generation, {}, {}, {}, sums.size()});
  end.checksums.insert(end.checksums.end(), sums.begin(), sums.end());
  for (uint64_t at = 0; at < copies_.size(); ++at) {
    if (!copies_[at].is_lost) continue;
    item.lost.push_back(at);
    Append(copies_[at].dirty, item.dirty);
    Append(copies_[at].failed, item.failed);
  }
  return Status::Ok();
}

Status Writer::FinishEnd(EndOutcome outcome) {
  {
    std::lock_guard lock(mutex_);
    phase_ = Phase::kEnded;
    is_refused_ = outcome == EndOutcome::kUnknown;
    if (outcome == EndOutcome::kInvalid) context_->session.AbortLater(owner_.id, AbortItem());
  }
  RotateIfRefused();
  if (outcome == EndOutcome::kDone) return Status::Ok();
  if (outcome == EndOutcome::kSuperseded) {
    return {Code::kAlreadyExists,
            "the key was taken meanwhile, by an upsert or by an object whose node came back"};
  }
  if (outcome == EndOutcome::kGroupGone) {
    return {Code::kGroupGone,
            "the object's group has died with another of its members while this one was written"};
  }
  MC_RETURN_IF_ERROR(context_->session.CheckOpen());
  return {Code::kUnavailable,
          "the master has given up this put: the session or the nodes of its "
          "copies were lost meanwhile"};
}

void Writer::FailEnd() {
  {
    std::lock_guard lock(mutex_);
    phase_ = Phase::kEnded;
    context_->session.AbortLater(owner_.id, AbortItem());
  }
  RotateIfRefused();
}

void Writer::Abort() {
  PutAbort abort{owner_.id, {}};
  if (!PrepareAbort(abort)) return;
  Session& session = context_->session;
  const Deadline deadline = session.CallDeadline();
  FinishAbort(session.master().Tell(MessageType::kPutAbort, abort, deadline).ok());
}

bool Writer::PrepareAbort(PutAbort& abort) {
  std::unique_lock lock(mutex_);
  WaitUntilQuiet(lock);
  if (phase_ != Phase::kOpen) return false;
  phase_ = Phase::kEnded;
  abort.items.push_back(AbortItem());
  return true;
}

void Writer::FinishAbort(bool is_heard) {
  if (!is_heard) context_->session.AbortLater(owner_.id, AbortItem());
  RotateIfRefused();
}

PutAbort::Item Writer::AbortItem() const {
  PutAbort::Item item{grant_.put_id, {}, {}};
  for (const Copy& copy : copies_) {
    Append(copy.dirty, item.dirty);
    Append(copy.failed, item.failed);
  }
  return item;
}

// Its node will fence the id; a new one now spares later writes the refusal.
void Writer::RotateIfRefused() {
  if (must_rotate_) context_->session.Rotate(owner_.peer_id);
}

}  // namespace mooncake::store
