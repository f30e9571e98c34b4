#include "transfer/prepared.h"

#include "transfer/protocol.h"

namespace mooncake {

PreparedTransfer::PreparedTransfer(Op op, std::shared_ptr<RemoteSegment> remote,
                                   std::vector<Piece> pieces)
    : op_(op),
      remote_(std::move(remote)),
      pieces_(std::make_shared<const std::vector<Piece>>(std::move(pieces))),
      size_bytes_(TotalBytes(*pieces_)) {}

}  // namespace mooncake
