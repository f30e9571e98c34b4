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

// A stretch of a batch: `bytes` from byte `skipped` of piece `first` on.
struct Stretch {
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
  Stretch Next(uint64_t max_bytes) {
    Stretch& left = left_.back();
    const uint64_t room = std::min({max_bytes, left.bytes, kRequestBytes});
    Stretch slice{left.first, left.skipped, 0};
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

  void PutBack(const Stretch& slice) {
    left_.push_back(slice);
    left_bytes_ += slice.bytes;
  }

  // Replaces `pieces` by those of one slice.
  void Cut(const Stretch& slice, std::vector<Piece>& pieces) const {
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
  std::vector<Stretch> left_;
  uint64_t left_bytes_ = 0;
};

// Appends a piece, to the last one where it goes on from that on both sides. An empty one is
// dropped.
inline void AppendJoined(std::vector<Piece>& pieces, const Piece& piece) {
  if (piece.length == 0) return;
  if (!pieces.empty()) {
    Piece& last = pieces.back();
    const bool goes_on =
        piece.address - last.address == last.length && piece.offset - last.offset == last.length;
    if (goes_on) {
      last.length += piece.length;
      return;
    }
  }
  pieces.push_back(piece);
}

// The same bytes in the same order, in as few pieces as that makes them.
inline std::vector<Piece> Joined(std::span<const Piece> pieces) {
  std::vector<Piece> joined;
  joined.reserve(pieces.size());
  for (const Piece& piece : pieces) AppendJoined(joined, piece);
  return joined;
}

}  // namespace mooncake
