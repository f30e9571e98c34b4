// Slicer: cuts a batch into slices of bounded size. What was cut can be put back, so a slice that
// was lost on one path is cut anew for another.
//
// Pure. Thread safety: one thread at a time.
// REQUIRES: the pieces outlive it, and none of them is empty.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <vector>

#include "transfer/protocol.h"
#include "transfer/types.h"

namespace mooncake {

// A run of a batch: `bytes` from byte `skipped` of piece `first` on.
struct Extent {
  size_t first = 0;
  uint64_t skipped = 0;
  uint64_t bytes = 0;
};

class Slicer {
 public:
  explicit Slicer(std::span<const Piece> pieces) : pieces_(pieces) {
    const uint64_t all = TotalBytes(pieces);
    if (all > 0) PutBack({0, 0, all});
  }

  // In no slice.
  uint64_t left_bytes() const { return left_bytes_; }

  // The next slice; never empty, at most `max_bytes` and what one request may carry.
  // REQUIRES: left_bytes() > 0 and max_bytes > 0.
  Extent Next(uint64_t max_bytes) {
    Extent& left = left_.back();
    const uint64_t room = std::min({max_bytes, left.bytes, kRequestBytes});
    Extent slice{left.first, left.skipped, 0};
    for (uint32_t count = 0; slice.bytes < room && count < kRequestPieces; ++count) {
      const uint64_t rest = pieces_[left.first].length - left.skipped;
      const uint64_t step = std::min(rest, room - slice.bytes);
      slice.bytes += step;
      left.skipped += step;
      if (step < rest) break;
      ++left.first;
      left.skipped = 0;
    }
    left.bytes -= slice.bytes;
    left_bytes_ -= slice.bytes;
    if (left.bytes == 0) left_.pop_back();
    return slice;
  }

  void PutBack(const Extent& slice) {
    left_.push_back(slice);
    left_bytes_ += slice.bytes;
  }

  // Replaces `pieces` by those of one slice.
  void Cut(const Extent& slice, std::vector<Piece>& pieces) const {
    pieces.clear();
    uint64_t left = slice.bytes;
    uint64_t skipped = slice.skipped;
    for (size_t at = slice.first; left > 0; ++at) {
      const Piece& piece = pieces_[at];
      const uint64_t length = std::min(left, piece.length - skipped);
      pieces.push_back({piece.address + skipped, piece.offset + skipped, length});
      left -= length;
      skipped = 0;
    }
  }

 private:
  std::span<const Piece> pieces_;
  std::vector<Extent> left_;
  uint64_t left_bytes_ = 0;
};

// The same bytes in fewer pieces: empty ones are dropped, those that follow each other on both
// sides become one.
inline std::vector<Piece> Joined(std::span<const Piece> pieces) {
  std::vector<Piece> joined;
  joined.reserve(pieces.size());
  for (const Piece& piece : pieces) {
    if (piece.length == 0) continue;
    if (!joined.empty()) {
      Piece& last = joined.back();
      const bool follows =
          last.address + last.length == piece.address && last.offset + last.length == piece.offset;
      if (follows) {
        last.length += piece.length;
        continue;
      }
    }
    joined.push_back(piece);
  }
  return joined;
}

}  // namespace mooncake
