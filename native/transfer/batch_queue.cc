#include "transfer/batch_queue.h"

#include <algorithm>
#include <utility>

#include "transfer/engine.h"

namespace mooncake {
namespace {

bool IsSmall(const SubmittedBatch& batch) {
  return !batch.is_alone && !batch.note && batch.options.barrier == 0 &&
         batch.size_bytes <= BatchQueue::kSmallBytes &&
         batch.pieces->size() <= BatchQueue::kTogetherPieces &&
         !batch.claim->footprint().is_on_device();
}

bool FitTogether(const SubmittedBatch& a, const SubmittedBatch& b) {
  return a.remote == b.remote && a.op == b.op &&
         a.options.checksums.empty() == b.options.checksums.empty() &&
         a.claim->footprint().location == b.claim->footprint().location;
}

}  // namespace

void BatchQueue::Push(SubmittedBatch batch) {
  waiting(batch.options.priority).push_back(std::move(batch));
}

void BatchQueue::PutBack(BatchGroup&& group) {
  if (group.empty()) return;
  BatchGroup& batches = waiting(group.front().options.priority);
  batches.splice(batches.begin(), group);
}

BatchGroup BatchQueue::Take(bool may_take_background) {
  BatchGroup group;
  const auto priority = Next(may_take_background);
  if (!priority) return group;
  foreground_run_ = *priority == Priority::kForeground ? foreground_run_ + 1 : 0;
  BatchGroup& from = waiting(*priority);
  group.splice(group.end(), from, from.begin());
  if (IsSmall(group.front())) AddCompany(group, from);
  return group;
}

std::optional<Priority> BatchQueue::Next(bool may_take_background) const {
  const bool has_background = may_take_background && size(Priority::kBackground) > 0;
  if (size(Priority::kForeground) == 0) {
    return has_background ? std::optional(Priority::kBackground) : std::nullopt;
  }
  return has_background && foreground_run_ >= kForegroundRun ? Priority::kBackground
                                                             : Priority::kForeground;
}

void BatchQueue::AddCompany(BatchGroup& group, BatchGroup& from) {
  size_t pieces = group.front().pieces->size();
  uint64_t bytes = group.front().size_bytes;
  auto at = from.begin();
  for (int looked = 0; at != from.end() && looked < kLookahead; ++looked) {
    const auto batch = at++;
    const bool has_room = pieces + batch->pieces->size() <= kTogetherPieces &&
                          bytes + batch->size_bytes <= kTogetherBytes;
    if (!has_room || !IsSmall(*batch) || !FitTogether(group.front(), *batch)) continue;
    pieces += batch->pieces->size();
    bytes += batch->size_bytes;
    group.splice(group.end(), from, batch);
  }
}

BatchGroup BatchQueue::Remove(const Transfer& transfer) {
  BatchGroup removed;
  for (BatchGroup& batches : waiting_) {
    const auto found = std::find_if(batches.begin(), batches.end(), [&](const auto& batch) {
      return batch.transfer.get() == &transfer;
    });
    if (found != batches.end()) removed.splice(removed.end(), batches, found);
  }
  return removed;
}

BatchGroup BatchQueue::RemoveAll() {
  BatchGroup removed;
  for (BatchGroup& batches : waiting_) removed.splice(removed.end(), batches);
  return removed;
}

}  // namespace mooncake
