// TcpProber: tries paths that are not up with new connections, on a thread of its own, so that no
// batch waits for it.
//
// Thread safety: Probe by any thread; the others by the one that owns it.
#pragma once

#include <thread>

#include "base/patience.h"
#include "base/status.h"
#include "transfer/scheduler.h"
#include "transfer/transports/tcp_paths.h"

namespace mooncake {

// Tries all of `due` at once, which the scheduler has named, and tells it and the paths. Blocks.
void Probe(TcpPaths& paths, PathMask due, Patience patience);

class TcpProber {
 public:
  explicit TcpProber(TcpPaths& paths);
  // REQUIRES: the paths are stopped.
  ~TcpProber();
  TcpProber(const TcpProber&) = delete;
  TcpProber& operator=(const TcpProber&) = delete;

 private:
  void Main();

  TcpPaths& paths_;
  std::thread thread_;
};

}  // namespace mooncake
