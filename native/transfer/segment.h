// Segment: memory of this process that peers may read and write, one-sided. The engine took it, or
// it was there before and is lent.
//
// Thread safety: all methods may be called by any thread.
// Ownership: memory that was taken lives as long as any shared_ptr to it. A connection that is
// receiving into it holds one, so memory never goes away under a copy. Memory that is lent belongs
// to the lender, who keeps it until WaitUntilUnused says that nobody can reach it any more.
// Invariants: memory that was taken is prefaulted, and its memory file sealed against shrinking and
// growing: touching it never faults on a missing page. An id is random and never used again.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "base/deadline.h"
#include "base/fd.h"
#include "base/status.h"

namespace mooncake {

class Segment : public std::enable_shared_from_this<Segment> {
 public:
  // Takes memory. kInvalidArgument for size 0 and a name that is too long, kOutOfSpace when the
  // memory is not there.
  static Result<std::shared_ptr<Segment>> Create(uint64_t size_bytes, std::string name = "");
  // Lends [address, address + size_bytes). kInvalidArgument when not all of it is mapped.
  static Result<std::shared_ptr<Segment>> Lend(uint64_t address, uint64_t size_bytes,
                                               bool is_read_only, std::string name = "");
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  uint64_t id() const { return id_; }
  const std::string& name() const { return name_; }  // empty: none
  uint64_t size_bytes() const { return size_bytes_; }
  uint8_t* data() const { return data_; }
  uint64_t address() const { return reinterpret_cast<uint64_t>(data_); }
  bool is_lent() const { return !writable_.valid(); }
  bool is_read_only() const { return is_read_only_; }  // to peers

  // True when [offset, offset + length) lies inside.
  bool Contains(uint64_t offset, uint64_t length) const {
    return offset <= size_bytes_ && length <= size_bytes_ - offset;
  }

  // Of the memory file, for passing to a peer; read_only() cannot be mapped writable. Memory that
  // is lent has none.
  const Fd& read_only() const { return read_only_; }
  const Fd& writable() const { return writable_; }

  // Somebody who can reach memory that is lent.
  class Use {
   public:
    Use() = default;
    explicit Use(std::shared_ptr<const Segment> segment) : segment_(std::move(segment)) {
      segment_->AddUses(1);
    }
    Use(Use&&) = default;
    Use& operator=(Use&& other) noexcept {
      std::swap(segment_, other.segment_);
      return *this;
    }
    ~Use() {
      if (segment_ != nullptr) segment_->AddUses(-1);
    }
    // Counts for ever: nobody will hear how it ended.
    void Abandon() { segment_.reset(); }

   private:
    std::shared_ptr<const Segment> segment_;  // null: of nothing
  };

  // Blocks until nobody uses the memory, or the deadline: false.
  bool WaitUntilUnused(Deadline deadline) const;

 private:
  Segment(uint64_t size_bytes, std::string name, Fd writable, Fd read_only, uint8_t* data,
          bool is_read_only);
  void AddUses(int count) const;

  const uint64_t id_;
  const uint64_t size_bytes_;
  const std::string name_;
  const Fd writable_;
  const Fd read_only_;
  uint8_t* const data_;
  const bool is_read_only_;

  mutable std::mutex mutex_;  // guards uses_
  mutable std::condition_variable unused_;
  mutable int uses_ = 0;
};

}  // namespace mooncake
