// Carrying out batches that were admitted, in the calling thread.
//
// Thread safety: all functions may be called by any thread.
#pragma once

#include <optional>
#include <span>
#include <string>

#include "base/status.h"
#include "transfer/batch_queue.h"
#include "transfer/buffers.h"
#include "transfer/engine.h"
#include "transfer/types.h"

namespace mooncake {

// Moves a batch, then gives the owner the notification, if there is one.
// REQUIRES: a claim with this footprint is held meanwhile.
Status Carry(Op op, const RemoteSegment& remote, std::span<const Piece> pieces,
             const BufferTable::Footprint& footprint, BatchOptions options, const Note& note);

// Carries out a group and ends its batches, each with its own result. Gives those back that are to
// be carried out alone now, because others in the group have given up.
BatchGroup CarryGroup(BatchGroup group);

}  // namespace mooncake
