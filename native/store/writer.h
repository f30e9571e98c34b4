// Writer: one object that is being written, part by part, then committed or aborted.
//
// Thread safety: WritePart by any threads at once, for different parts; Commit and Abort wait for
// them.
// Ownership: shares the client's context. One that was neither committed nor aborted aborts.
// Invariants: a copy whose write failed is never written again and is told to the master as dirty:
// bytes may still be under way, so its space is free only when its node has fenced this process's
// peer id. That is the one way for crashed, stalled and timed-out writers alike; the price is a new
// peer id after a failed write.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "store/context.h"

namespace mooncake::store {

class Writer {
 public:
  // The extents, one a copy, were granted to the session `owner` for `item`.
  Writer(std::shared_ptr<Context> context, const Session::Identity& owner,
         const PutStart::Item& item, uint64_t generation, std::vector<ExtentAddress> copies);
  ~Writer();

  // Writes the headers. Called once, before any part.
  Status WriteHeaders();

  // Gathers `memory` in order into part `part`, of all copies. kInvalidArgument when the lengths
  // do not sum up to the part's or it was written before. After kUnavailable, kFenced and other
  // faults of the world no copy is left and the put has failed.
  Status WritePart(uint64_t part, std::span<const Range> memory);
  // The whole object at once.
  Status WriteAll(std::span<const Range> memory);

  // Makes the object visible. kInvalidArgument when a part is missing.
  Status Commit();
  void Abort();

  // Commit in two steps, for batches: what to tell the master, and what it said.
  Status PrepareEnd(PutEnd& end);
  Status FinishEnd(EndOutcome outcome);
  // The master could not be asked: it will be told to forget the put.
  void FailEnd();

  SessionId session_id() const { return owner_.id; }
  uint64_t part_count() const { return part_done_.size(); }
  size_t copy_count() const { return copies_.size(); }

 private:
  enum class Phase { kOpen, kEnding, kEnded };
  struct Target {
    ExtentAddress extent;
    bool is_lost = false;   // not to be part of the object
    bool is_dirty = false;  // bytes may still be under way to it
  };

  Status Enter(uint64_t first_part, uint64_t parts);
  void Leave(uint64_t first_part, uint64_t parts, bool is_done);
  Status Store(const Section& section, std::span<const Range> memory);
  Status WriteCopies(uint64_t offset, std::span<const Range> memory);
  Status WriteCopy(size_t at, uint64_t offset, std::span<const Range> memory);
  void LoseCopy(size_t at, const Status& status, bool is_dirty);
  Status Failure() const;
  void WaitUntilQuiet(std::unique_lock<std::mutex>& lock);
  PutAbort::Item AbortItem() const;
  void RotateIfRefused();

  const std::shared_ptr<Context> context_;
  const Session::Identity owner_;
  const std::string key_;
  const uint64_t put_id_, generation_, size_bytes_, part_bytes_;

  std::mutex mutex_;
  std::condition_variable quiet_;
  Phase phase_ = Phase::kOpen;
  int writing_ = 0;
  std::vector<Target> copies_;
  std::vector<bool> part_done_, part_taken_;
  std::vector<uint32_t> checksums_;
  bool must_rotate_ = false;  // a node has fenced this peer id, or will
  Status first_failure_;
};

}  // namespace mooncake::store
