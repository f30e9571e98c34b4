// BufferTable: which local memory batches may touch, and which of it they are touching now.
//
// Thread safety: all methods may be called by any thread.
// Invariants: sources_ is the union of the registered ranges and targets_ of those that may change,
// each sorted, disjoint, none adjacent.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <list>
#include <map>
#include <mutex>
#include <span>
#include <tuple>
#include <vector>

#include "base/status.h"
#include "transfer/types.h"

namespace mooncake {

class BufferTable {
 public:
  struct Range {  // [begin, end)
    uint64_t begin = 0;
    uint64_t end = 0;
  };
  using Ranges = std::vector<Range>;

  // Local memory in use by one batch, until it is destroyed.
  class Claim {
   public:
    Claim(BufferTable& table, std::list<Ranges>::iterator at) : table_(&table), at_(at) {}
    Claim(Claim&& other) noexcept : table_(std::exchange(other.table_, nullptr)), at_(other.at_) {}
    Claim& operator=(Claim&&) = delete;
    ~Claim() {
      if (table_ != nullptr) table_->Drop(at_);
    }

   private:
    BufferTable* table_;
    std::list<Ranges>::iterator at_;
  };

  // kInvalidArgument when the range is empty or wraps.
  Status Register(uint64_t address, uint64_t size_bytes, Access access);

  // Waits until no batch uses the range, unless it is registered more often than this.
  // kBufferNotRegistered when there is no such registration.
  Status Unregister(uint64_t address, uint64_t size_bytes, Access access);

  // kBufferNotRegistered, naming the first piece that lies outside. Pieces of length 0 lie nowhere.
  // REQUIRES: the table outlives the claim.
  Result<Claim> Use(Op op, std::span<const Piece> pieces);

 private:
  using Key = std::tuple<uint64_t, uint64_t, Access>;  // address, size, access

  void Merge();
  bool InUse(const Range& range) const;
  void Drop(std::list<Ranges>::iterator at);

  std::mutex mutex_;
  std::condition_variable dropped_;
  std::map<Key, uint64_t> counts_;
  Ranges sources_;
  Ranges targets_;
  std::list<Ranges> claims_;
};

}  // namespace mooncake
