// The words of the transfer engine.
#pragma once

#include <cstdint>
#include <string>

namespace mooncake {

enum class Op : uint8_t { kRead, kWrite };  // kRead: remote to local; kWrite: local to remote

// One run of bytes: `length` bytes between local memory at `address` and byte `offset` of a remote
// segment.
struct Piece {
  uint64_t address = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
};

// What batches may do with local memory.
enum class Access : uint8_t {
  kSource,  // write from it; memory that must not change
  kBoth,
};

enum class SameHost : uint8_t {
  kShm,      // map the memory of peers on this host
  kNetwork,  // reach peers on this host as any other
};

struct EngineOptions {
  std::string listen = "127.0.0.1:0";  // host:port, [v6]:port; port 0 takes a free one
  SameHost same_host = SameHost::kShm;
  int io_threads = 2;   // carry out submitted batches
  double hello_s = 10;  // how long a connection to this engine may take to say who it is
};

}  // namespace mooncake
