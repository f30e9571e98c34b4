// Dispatch: one request body to the master core, one answer body back. Pure.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"
#include "store/codec.h"
#include "store/master_core.h"

namespace mooncake::store {

// What a shell adds to a request, and learns from it.
struct DispatchContext {
  double now_s = 0;
  uint64_t fresh_id = 0;  // random, not 0; becomes the session of a Hello
  NodeId node = 0;        // set when the request came from a node that the master knows
};

// Appends the answer's body to `answer`; nothing for messages that have none. kWire when the type
// is unknown or the body does not fit it; the core has then seen nothing. kInvalidArgument when a
// list in it has more than kMaxBatch, and when the answer would not fit a frame.
Status Dispatch(MasterCore& core, uint8_t type, std::span<const uint8_t> body,
                DispatchContext& context, std::vector<uint8_t>& answer);

}  // namespace mooncake::store
