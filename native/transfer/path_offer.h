// PathOffer: a path as one batch sees it, and the arithmetic that spreads what is left of the batch
// so that all paths end together.
//
// Pure. Bytes are doubles here: most of them are estimates.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>

namespace mooncake {

struct PathOffer {
  uint32_t path = 0;
  double rate = 0;  // bytes/s, > 0
  double latency_s = 0;
  double queued = 0;      // bytes to be done before
  double least = 0;       // bytes worth a slice
  double most = 0;        // bytes that one slice may have; >= least
  bool is_open = true;    // the batch can send on it now
  bool has_room = false;  // for one more slice

  // When so many more bytes would be done.
  double EndS(double bytes) const { return latency_s + (queued + bytes) / rate; }
  // Bytes that could be done by then, beyond what is queued.
  double Share(double end_s) const { return std::max(0.0, (end_s - latency_s) * rate - queued); }
};

struct OfferTaken {
  uint32_t path = 0;
  uint64_t bytes = 0;
};

// The offer that the batch's next slice takes; nothing when it had better wait for a better one.
// `is_first`: nothing of the batch is in flight, and the best that is open is taken, room or not.
// REQUIRES: left > 0.
std::optional<OfferTaken> TakeOffer(std::span<const PathOffer> offers, uint64_t left,
                                    bool is_first);

}  // namespace mooncake
