// Baselines: what this machine can do without an engine, for te-bench to compare it with.
//
// Thread safety: free functions; each call has threads and memory of its own. They block for about
// `seconds` longer than it takes to fault the memory in.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "transfer/types.h"

namespace mooncake {

// Anonymous memory whose every page is there.
class FaultedMemory {
 public:
  static Result<FaultedMemory> Take(uint64_t size_bytes);
  FaultedMemory(FaultedMemory&& other) noexcept;
  FaultedMemory& operator=(FaultedMemory&&) = delete;
  ~FaultedMemory();

  char* data() const { return data_; }
  uint64_t size_bytes() const { return size_bytes_; }

 private:
  FaultedMemory(char* data, uint64_t size_bytes) : data_(data), size_bytes_(size_bytes) {}

  char* data_ = nullptr;
  uint64_t size_bytes_ = 0;
};

// How much work one measurement is.
struct BaselineLoad {
  int threads = 1;           // each with its own memory, and for sockets its own connection
  uint64_t block_bytes = 0;  // of one memcpy or send
  uint64_t span_bytes = 0;   // of each side's memory a thread, walked round; a multiple of a block
  double seconds = 1;
};

// kInvalidArgument, naming what is wrong with `load`.
Status CheckLoad(const BaselineLoad& load);

// Bytes a second of memcpy over all threads: block after block of the source, to blocks that lie
// scattered over the target, as the pieces of a batch do.
Result<double> MemcpyRate(const BaselineLoad& load);

// Bytes a second over plain sockets to or from a SocketPeer, over all threads. kWrite counts what
// the peer has received, kRead what this side has.
Result<double> SocketRate(const std::string& endpoint, Op op, const BaselineLoad& load);

}  // namespace mooncake
