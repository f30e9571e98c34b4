// MasterLoad: puts objects into a master core as fast as it takes them, without a wire, a client or
// a byte of payload: what the core alone can do, and what memory it takes.
//
// Thread safety: none; one owner.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/status.h"
#include "store/master_core.h"
#include "store/messages.h"

namespace mooncake {

struct MasterLoadOptions {
  uint32_t nodes = 1;
  uint64_t room_objects = 0;  // how many the nodes have room for together; more evict
  uint64_t size_bytes = 4096;
  uint32_t batch = 128;  // puts a message
};

// Of the core's own steps: messages are made and answers looked at outside the time.
struct MasterLoadTime {
  uint64_t put = 0, refused = 0, retries = 0;
  double wall_s = 0, cpu_s = 0;
};

class MasterLoad {
 public:
  static constexpr size_t kKeyBytes = 24;

  // REQUIRES: every option is above 0, batch <= store::kMaxBatch, and a node has room for one.
  explicit MasterLoad(const MasterLoadOptions& options);

  // Puts the next `count` objects, each under a key of kKeyBytes of its own: starts in a batch,
  // then ends in one.
  MasterLoadTime Put(uint64_t count);

  uint64_t objects() const { return core_.Report().objects; }
  uint64_t evictions() const { return core_.Report().counters.evictions; }

 private:
  void MakeStarts(uint64_t count);
  void Start(MasterLoadTime& time);
  void End(MasterLoadTime& time);

  const MasterLoadOptions options_;
  store::MasterCore core_;
  std::string keys_;  // of the batch, one after another
  store::PutStart starts_;
  store::PutEnd ends_;
  uint64_t last_put_ = 0;
  double now_s_ = 0;
};

}  // namespace mooncake
