// BufferTable: which local memory batches may touch, where it is, and which of it they are touching
// now.
//
// Thread safety: all methods may be called by any thread.
// Invariants: sources_ is the union of the registered ranges and targets_ of those that may change,
// each sorted, disjoint, none adjacent to another of the same kind.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "base/status.h"
#include "transfer/types.h"

namespace mooncake {

class BufferTable {
 public:
  static constexpr int kHost = -1;  // in place of a GPU

  struct Range {  // [begin, end)
    uint64_t begin = 0;
    uint64_t end = 0;
    int device = kHost;  // the GPU that it is on
  };
  using Ranges = std::vector<Range>;

  // What a batch uses: at most one range a registered range.
  struct Footprint {
    Ranges ranges = {};  // by rising address
    int location = -1;   // as BatchOptions::location
    uint64_t generation = 0;

    bool is_on_device() const;
    // Of the range that holds `address`.
    // REQUIRES: one does.
    int DeviceOf(uint64_t address) const;
  };
  using SharedFootprint = std::shared_ptr<const Footprint>;

  // Local memory in use by one batch, until it is destroyed.
  class Claim {
   public:
    Claim(BufferTable& table, std::list<SharedFootprint>::iterator at) : table_(&table), at_(at) {}
    Claim(Claim&& other) noexcept : table_(std::exchange(other.table_, nullptr)), at_(other.at_) {}
    Claim& operator=(Claim&&) = delete;
    ~Claim() {
      if (table_ != nullptr) table_->Drop(at_);
    }

    const Footprint& footprint() const { return **at_; }

   private:
    BufferTable* table_;
    std::list<SharedFootprint>::iterator at_;
  };

  // `locations`: those that make a difference, e.g. "cpu:1" or "cuda:0". Without any, nobody looks
  // where memory is.
  explicit BufferTable(std::vector<std::string> locations = {})
      : locations_(std::move(locations)) {}

  // kInvalidArgument when the range is empty or wraps, or overlaps one of another device.
  Status Register(uint64_t address, uint64_t size_bytes, Access access, int device = kHost);

  // Waits until no batch uses the range, unless it is registered more often than this. A batch that
  // begins later, under another registration that overlaps, is not waited for.
  // kBufferNotRegistered when there is no such registration.
  Status Unregister(uint64_t address, uint64_t size_bytes, Access access);

  // kBufferNotRegistered, naming the first piece that lies outside. Pieces of length 0 lie nowhere.
  // The location of a batch is that of its first piece.
  // REQUIRES: the table outlives the claim.
  Result<Claim> Use(Op op, std::span<const Piece> pieces);

  // The same, for a batch that is used again and again: `known`, null at first, keeps what was
  // found out, and the pieces are walked only when registrations have changed since. Several
  // threads may pass the same one; it is guarded by the table.
  // REQUIRES: `known` is passed with the same op and pieces always.
  Result<Claim> Use(Op op, std::span<const Piece> pieces, SharedFootprint& known);

 private:
  using Key = std::tuple<uint64_t, uint64_t, Access>;  // address, size, access
  struct Registration {
    int device = kHost;
    int location = -1;  // index into locations_
    uint64_t count = 0;
  };

  int Locate(uint64_t address, int device) const;
  Result<SharedFootprint> Survey(Op op, std::span<const Piece> pieces) const;
  Status Outside(const Piece& piece) const;
  int LocationOf(uint64_t address) const;
  void Merge(Range changed);
  void Merge(Ranges& ranges, Access least, Range changed) const;
  bool InUse(const Range& range, uint64_t generation) const;
  void Drop(std::list<SharedFootprint>::iterator at);

  const std::vector<std::string> locations_;

  std::mutex mutex_;
  std::condition_variable dropped_;
  std::map<Key, Registration> registrations_;
  uint64_t generation_ = 1;  // of the two below
  Ranges sources_;
  Ranges targets_;
  std::list<SharedFootprint> claims_;
};

}  // namespace mooncake
