// Slicer: cuts a batch into requests of bounded size, in order. Two slicers over the same batch cut
// alike, so sender and receiver of one batch need share nothing but it.
//
// Pure. Thread safety: one thread at a time.
// REQUIRES: the pieces outlive it.
#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "transfer/protocol.h"
#include "transfer/types.h"

namespace mooncake {

class Slicer {
 public:
  explicit Slicer(std::span<const Piece> pieces) : pieces_(pieces) { SkipEmpty(); }

  bool done() const { return at_ == pieces_.size(); }

  // Replaces `request` by the next one; never empty.
  // REQUIRES: !done().
  void Next(std::vector<Piece>& request) {
    request.clear();
    uint64_t room = kRequestBytes;
    while (!done() && room > 0 && request.size() < kRequestPieces) {
      const Piece& piece = pieces_[at_];
      const uint64_t length = std::min(room, piece.length - taken_);
      request.push_back({piece.address + taken_, piece.offset + taken_, length});
      room -= length;
      taken_ += length;
      if (taken_ == piece.length) Advance();
    }
  }

 private:
  void Advance() {
    ++at_;
    taken_ = 0;
    SkipEmpty();
  }
  void SkipEmpty() {
    while (!done() && pieces_[at_].length == 0) ++at_;
  }

  std::span<const Piece> pieces_;
  size_t at_ = 0;
  uint64_t taken_ = 0;  // bytes of pieces_[at_] that are in earlier requests
};

}  // namespace mooncake
