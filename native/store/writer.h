// Writer: one object that is being written, range by range, then committed or aborted.
//
// Thread safety: writes by any threads at once, of different ranges; Commit and Abort wait for
// them.
// Ownership: shares the client's context. One that was neither committed nor aborted aborts.
// Invariants: a copy to which a write failed is never written again and is told to the master as
// lost. It is told as dirty as well when bytes may still be under way to it: the write had begun,
// over a network, and its node does not confirm that it has ended (see Haul). Its space is free
// again only when the node has fenced this process's peer id. That is the one way for crashed,
// stalled and cut-off writers alike; the price is a new peer id, which ends the process's other
// puts that are open. A failed write that is not dirty costs that copy and nothing else.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "store/chunk_sums.h"
#include "store/context.h"
#include "store/coverage.h"
#include "store/haul.h"

namespace mooncake::store {

class Writer {
 public:
  // What the master granted.
  struct Grant {
    uint64_t put_id = 0;
    uint64_t generation = 0;
    Shape shape = {};
    bool has_checksums = true;
    std::shared_ptr<const std::vector<NodeAddress>> nodes = {};
    std::vector<Placement> extents = {};  // copy by copy, of each its stripes in order
  };
  // A write that has been laid out, until it is settled.
  struct Job {
    uint64_t begin = 0, end = 0;
    std::vector<uint64_t> stripes = {};  // whose header goes with it
    struct Cut {
      Chunk chunk;
      uint64_t address, offset, length;
    };
    std::vector<Cut> cuts = {};
    std::vector<Haul::Slot> slots = {};  // copy by copy: the headers, then the cuts
  };

  Writer(std::shared_ptr<Context> context, const Session::Identity& owner, std::string key,
         Grant grant);
  ~Writer();

  // Gathers `memory` in order into the object's bytes from `offset` on, of all copies.
  // kInvalidArgument when some of it was written before or lies outside. After kUnavailable and
  // other faults of the world no copy is left and the put has failed.
  Status Write(uint64_t offset, std::span<const Range> memory);
  // The same for a whole part. kInvalidArgument when the lengths do not sum up to its size.
  Status WritePart(uint64_t part, std::span<const Range> memory);

  // Makes the object visible. kInvalidArgument when bytes are missing. kAlreadyExists when an
  // upsert took the key meanwhile.
  Status Commit();
  void Abort();

  // Write in three steps, for batches: lays it out, and after the haul settles it. Every job that
  // began is settled.
  Status Begin(uint64_t offset, std::span<const Range> memory, Haul& haul, Job& job);
  Status Settle(const Haul& haul, const Job& job);

  // Commit in two steps, for batches: what to tell the master, and what it said. After the first
  // either of the others is called.
  Status PrepareEnd(PutEnd& end);
  Status FinishEnd(EndOutcome outcome);
  // The master could not be asked: it will be told to forget the put.
  void FailEnd();

  // Abort in two steps, for batches: what to tell the master, unless it has ended; and whether the
  // master has heard it. After the first the other is called.
  bool PrepareAbort(PutAbort& abort);
  void FinishAbort(bool is_heard);

  // The put has failed for a fault of the world, and the master does not hold it against the key:
  // once this is aborted, the same value may be put again.
  bool is_given_up();

  const Session::Identity& owner() const { return owner_; }
  const Shape& shape() const { return grant_.shape; }
  const std::string& key() const { return key_; }
  size_t copy_count();  // that are not lost
  bool has_checksums() const { return grant_.has_checksums; }
  Context& context() { return *context_; }

 private:
  enum class Phase { kOpen, kEnding, kEnded };
  struct Copy {
    bool is_lost = false;             // not to be part of the object
    std::vector<NodeId> dirty = {};   // bytes may still be under way there
    std::vector<NodeId> failed = {};  // did not take a write
  };

  void AddCopy(size_t copy, std::span<uint8_t* const> headers, Haul& haul, Job& job) const;
  const Placement& ExtentOf(size_t copy, uint64_t stripe) const;
  const NodeAddress& NodeOf(const Placement& extent) const { return (*grant_.nodes)[extent.node]; }
  std::vector<uint8_t*> EncodeHeaders(std::span<const uint64_t> stripes, Arena& arena) const;
  Status TakeResults(const Haul& haul, const Job& job);
  Status ResultOf(size_t copy, const Haul& haul, const Job& job);
  void AddChecksums(size_t copy, const Haul& haul, const Job& job);
  Status Failure() const;
  bool HasCopy() const;
  Status CheckWhole() const;
  Status WriteEmpty();
  void WaitUntilQuiet(std::unique_lock<std::mutex>& lock);
  PutAbort::Item AbortItem() const;
  void RotateIfRefused();

  const std::shared_ptr<Context> context_;
  const Session::Identity owner_;
  const std::string key_;
  const Grant grant_;
  const uint64_t stripes_;

  std::mutex mutex_;
  std::condition_variable quiet_;
  Phase phase_ = Phase::kOpen;
  int writing_ = 0;
  std::vector<Copy> copies_;
  Coverage coverage_;
  ChunkSums checksums_;
  std::vector<bool> has_header_;  // of each stripe
  bool must_rotate_ = false;      // a node has fenced this peer id, or will
  Status first_failure_;
  bool is_refused_ = false;  // the master knew nothing of it at the end
};

}  // namespace mooncake::store
