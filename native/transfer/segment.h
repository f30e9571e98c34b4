// Segment: memory of this process that peers may read and write, one-sided.
//
// Thread safety: all methods may be called by any thread.
// Ownership: the mapping lives as long as any shared_ptr to it. A connection that is receiving into
// it holds one, so memory never goes away under a copy.
// Invariants: prefaulted, and its memory file sealed against shrinking and growing: touching it
// never faults on a missing page. Its id is random and never used again.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/fd.h"
#include "base/status.h"

namespace mooncake {

class Segment : public std::enable_shared_from_this<Segment> {
 public:
  // kInvalidArgument for size 0, kOutOfSpace when the memory is not there.
  static Result<std::shared_ptr<Segment>> Create(uint64_t size_bytes);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  uint64_t id() const { return id_; }
  uint64_t size_bytes() const { return size_bytes_; }
  uint8_t* data() const { return data_; }
  uint64_t address() const { return reinterpret_cast<uint64_t>(data_); }

  // True when [offset, offset + length) lies inside.
  bool Contains(uint64_t offset, uint64_t length) const {
    return offset <= size_bytes_ && length <= size_bytes_ - offset;
  }

  // Of the memory file, for passing to a peer; read_only() cannot be mapped writable.
  const Fd& read_only() const { return read_only_; }
  const Fd& writable() const { return writable_; }

 private:
  Segment(uint64_t size_bytes, Fd writable, Fd read_only, uint8_t* data);

  const uint64_t id_;
  const uint64_t size_bytes_;
  const Fd writable_;
  const Fd read_only_;
  uint8_t* const data_;
};

}  // namespace mooncake
