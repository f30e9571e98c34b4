// A look at one path to an engine: does it connect, how long does an answer take, how fast are
// bytes echoed. For `mooncake topo --check`; batches measure their paths themselves.
//
// Thread safety: free functions.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"

namespace mooncake {

struct PathProbe {
  uint64_t engine_id = 0;  // of who answered
  std::string host_id;
  std::vector<std::string> endpoints;  // host:port, those that can be tried for the same engine
  double connect_s = 0;                // until the hello was answered
  double latency_s = 0;                // of an empty echo, the best of some
  double rate_bytes_per_s = 0;         // of an echo of 1 MiB, there and back, the best of some
};

// Connects from the address `local` (empty: the kernel chooses) to the engine at `remote`,
// host:port, and has 1 MiB echoed and compared. `expected_engine_id`: who must answer; 0: whoever
// does. Blocks. kInvalidArgument: no such address here or no host:port; kPeerUnreachable, kTimeout,
// kWire, kWrongPeer, and kChecksumMismatch when other bytes come back.
Result<PathProbe> ProbePath(const std::string& local, const std::string& remote,
                            uint64_t expected_engine_id, Deadline deadline);

}  // namespace mooncake
