// BatchQueue: submitted batches that wait for their turn, and which of them go next.
//
// The rule: foreground batches go first, in the order they came; but after kForegroundRun of them
// in a row a background batch that waits goes. A small batch takes other small ones along that
// wait for the same remote segment, with the same direction and priority, all with checksums or
// all without: together they are one
// batch for the transport, at most kTogetherPieces and kTogetherBytes large.
//
// Pure. Thread safety: one thread at a time.
#pragma once

#include <cstdint>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/status.h"
#include "transfer/buffers.h"
#include "transfer/transfer.h"
#include "transfer/types.h"

namespace mooncake {

class RemoteSegment;

struct SubmittedBatch {
  // Lets go of the local memory, then tells whoever waits.
  void End(Status status) {
    claim.reset();
    transfer->Complete(is_dirty ? std::move(status).AsDirty() : std::move(status));
  }

  Op op = Op::kRead;
  std::shared_ptr<RemoteSegment> remote;
  std::shared_ptr<const std::vector<Piece>> pieces;
  uint64_t size_bytes = 0;
  BatchOptions options;
  Note note;
  std::optional<BufferTable::Claim> claim;
  std::shared_ptr<Transfer> transfer = {};
  bool is_alone = false;  // not to be carried out with others
  bool is_dirty = false;  // it was begun once, and broken off
};

// To be carried out together.
using BatchGroup = std::list<SubmittedBatch>;

class BatchQueue {
 public:
  static constexpr int kForegroundRun = 8;
  static constexpr uint64_t kSmallBytes = 64 << 10;
  static constexpr uint64_t kTogetherBytes = 512 << 10;
  static constexpr size_t kTogetherPieces = 512;
  static constexpr int kLookahead = 256;  // batches that are looked at for company

  size_t size(Priority priority) const { return waiting(priority).size(); }
  void Push(SubmittedBatch batch);
  // Batches that were taken before; they go next of their priority.
  void PutBack(BatchGroup&& group);

  // What goes next; empty when nothing may.
  BatchGroup Take(bool may_take_background);
  // The batch of a transfer, or nothing when it does not wait here.
  BatchGroup Remove(const Transfer& transfer);
  BatchGroup RemoveAll();

 private:
  BatchGroup& waiting(Priority priority) { return waiting_[static_cast<size_t>(priority)]; }
  const BatchGroup& waiting(Priority priority) const {
    return waiting_[static_cast<size_t>(priority)];
  }
  std::optional<Priority> Next(bool may_take_background) const;
  void AddCompany(BatchGroup& group, BatchGroup& from);

  BatchGroup waiting_[2];  // by priority
  int foreground_run_ = 0;
};

}  // namespace mooncake
