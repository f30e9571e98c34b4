#include "transfer/carry.h"

#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include "transfer/staged_batch.h"
#include "transfer/transports/transport.h"

namespace mooncake {
namespace {

Status Notify(const RemoteSegment& remote, const std::string& note, const BatchOptions& options) {
  const Status status = remote.attachment().Notify(note, options);
  if (status.ok()) return status;
  return Status(status.code(),
                "every byte has landed, but not the notification: " + status.message());
}

Status CarryOne(const SubmittedBatch& batch) {
  MC_RETURN_IF_ERROR(batch.options.CheckTime());
  return Carry(batch.op, *batch.remote, *batch.pieces, batch.claim->footprint(), batch.options,
               batch.note);
}

// Ends those that are out of time or cancelled.
void EndThoseThatGiveUp(BatchGroup& group) {
  for (auto at = group.begin(); at != group.end();) {
    const auto batch = at++;
    Status status = batch->options.CheckTime();
    if (status.ok()) continue;
    batch->End(std::move(status));
    group.erase(batch);
  }
}

// Gives each batch what was found out about its pieces.
void HandOut(std::span<const uint32_t> checksums, const BatchGroup& group) {
  for (const SubmittedBatch& batch : group) {
    const auto own = batch.options.checksums;
    std::copy_n(checksums.begin(), own.size(), own.begin());
    checksums = checksums.subspan(own.size());
  }
}

// Until the first of them gives up.
Status CarryTogether(const BatchGroup& group) {
  const SubmittedBatch& first = group.front();
  const auto cancel = std::make_shared<CancelFlag>();
  BatchOptions options = first.options;
  options.cancel = cancel.get();
  std::vector<Piece> pieces;
  for (const SubmittedBatch& batch : group) {
    batch.transfer->Follow(cancel);
    pieces.insert(pieces.end(), batch.pieces->begin(), batch.pieces->end());
    if (batch.options.deadline.time() < options.deadline.time()) {
      options.deadline = batch.options.deadline;
    }
  }
  std::vector<uint32_t> checksums(first.options.checksums.empty() ? 0 : pieces.size());
  options.checksums = checksums;
  const Status status =
      Carry(first.op, *first.remote, pieces, first.claim->footprint(), options, {});
  HandOut(checksums, group);
  return status;
}

bool IsInterruption(const Status& status) {
  return status.code() == Code::kTimeout || status.code() == Code::kCancelled;
}

}  // namespace

Status Carry(Op op, const RemoteSegment& remote, std::span<const Piece> pieces,
             const BufferTable::Footprint& footprint, BatchOptions options, const Note& note) {
  options.location = footprint.location;
  Attachment& attachment = remote.attachment();
  Status status = footprint.is_on_device()
                      ? StagedBatch::Execute(attachment, op, pieces, options, footprint)
                      : attachment.Execute(op, pieces, options);
  if (status.code() == Code::kPeerUnreachable) return std::move(status).Of(remote.endpoint());
  if (!status.ok() || !note) return status;
  return Notify(remote, *note, options);
}

BatchGroup CarryGroup(BatchGroup group) {
  EndThoseThatGiveUp(group);
  if (group.empty()) return group;
  const bool is_alone = group.size() == 1;
  const Status status = is_alone ? CarryOne(group.front()) : CarryTogether(group);
  if (!is_alone && IsInterruption(status)) {
    for (SubmittedBatch& batch : group) {
      batch.is_alone = true;
      batch.is_dirty = status.is_dirty();
    }
    EndThoseThatGiveUp(group);
    return group;
  }
  for (SubmittedBatch& batch : group) batch.End(status);
  return {};
}

}  // namespace mooncake
