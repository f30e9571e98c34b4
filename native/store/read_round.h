// ReadRound: one try at several ranges of objects: what is moved for them, and whether it is right.
//
// A range has whole chunks in the middle, which are read into the caller's memory and verified
// there. Of a chunk that it only touches, all is read into a bounce as well, in the same batch:
// when the bounce has the chunk's checksum and its part of the range that of the caller's memory,
// the latter was committed.
//
// Thread safety: one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "store/haul.h"
#include "store/layout.h"

namespace mooncake::store {

// One copy of an object, as a round reads it.
struct ReadSource {
  const Shape* shape = nullptr;
  std::span<const Placement> extents = {};  // its stripes
  std::span<const NodeAddress> nodes = {};
  std::span<const uint32_t> checksums = {};  // empty: none are verified
  ObjectHeader header = {};                  // of its first extent
};

class ReadRound {
 public:
  // How a range fared.
  struct Outcome {
    Status status = {};     // of moving it
    bool is_right = false;  // when that is Ok
    NodeId wrong = 0;       // else the node that has wrong bytes
    uint64_t peer_id = 0;   // under which it was read
  };

  // About `ranges` of them will be added.
  ReadRound(Context& context, bool has_checksums, size_t ranges)
      : peer_id_(context.session.engine().peer_id()),
        haul_(context, Op::kRead, peer_id_, has_checksums, 2 * ranges) {
    jobs_.reserve(ranges);
    parts_.reserve(ranges);
    pieces_.reserve(ranges);
    heads_.reserve(ranges);
  }

  // Lays one range out; its number.
  size_t Add(const ReadSource& source, uint64_t offset, std::span<const Range> memory);
  uint64_t bounce_bytes() { return haul_.arena().taken_bytes(); }
  void Run() { haul_.Run(); }
  Outcome OutcomeOf(size_t number) const;

 private:
  struct Piece {
    Haul::Slot slot;
    uint64_t length;
  };
  struct Part {  // of one chunk
    Chunk chunk;
    uint64_t begin, end;  // of the range
    size_t first_piece;
    Haul::Slot bounce;  // not used: the range has all of the chunk
    const uint8_t* bounced = nullptr;
  };
  struct Head {
    Haul::Slot slot;
    const uint8_t* bytes;
    uint64_t stripe;
  };
  struct Job {
    ReadSource source;
    size_t first_part, first_piece, first_head;
  };

  void AddBounce(const ReadSource& source, Part& part);
  void AddHeads(const ReadSource& source, uint64_t begin, uint64_t end);
  Haul::Slot AddTo(const ReadSource& source, uint64_t address, uint64_t offset, uint64_t length);
  Status StatusOf(const Job& job, const Job& next) const;
  bool IsRight(const Job& job, const Part& part, size_t end_piece) const;
  Job Next() const { return {{}, parts_.size(), pieces_.size(), heads_.size()}; }

  const uint64_t peer_id_;
  Haul haul_;
  std::vector<Job> jobs_;
  std::vector<Part> parts_;
  std::vector<Piece> pieces_;
  std::vector<Head> heads_;
};

}  // namespace mooncake::store
