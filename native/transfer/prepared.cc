#include "transfer/prepared.h"

#include "transfer/protocol.h"

namespace mooncake {

std::vector<Piece> MergeAdjacent(std::span<const Piece> pieces) {
  std::vector<Piece> merged;
  for (const Piece& piece : pieces) {
    if (piece.length == 0) continue;
    const bool follows = !merged.empty() &&
                         merged.back().address + merged.back().length == piece.address &&
                         merged.back().offset + merged.back().length == piece.offset;
    if (follows) {
      merged.back().length += piece.length;
    } else {
      merged.push_back(piece);
    }
  }
  merged.shrink_to_fit();
  return merged;
}

PreparedTransfer::PreparedTransfer(Op op, std::shared_ptr<RemoteSegment> remote,
                                   std::vector<Piece> pieces)
    : op_(op),
      remote_(std::move(remote)),
      pieces_(std::make_shared<const std::vector<Piece>>(std::move(pieces))),
      size_bytes_(TotalBytes(*pieces_)) {}

}  // namespace mooncake
