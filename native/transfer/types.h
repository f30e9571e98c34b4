// The words of the transfer engine.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/patience.h"
#include "base/status.h"

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

// Foreground batches go ahead of background ones on every path.
enum class Priority : uint8_t { kForeground, kBackground };

// How a batch is to be carried out.
struct BatchOptions {
  Deadline deadline;
  Priority priority = Priority::kForeground;
  const CancelFlag* cancel = nullptr;  // null: it cannot be cancelled
  // Where its local memory is: the index of an entry of EngineOptions::preferred, in the order of
  // the map; -1: near to all addresses. Set by the engine.
  int location = -1;
  // Gets the CRC-32C of each piece; empty: none are wanted. They are right when the batch has
  // succeeded, and undefined before and otherwise. The memory is the caller's, until then. A piece
  // of length 0 has 0. Not for prepared transfers, whose pieces were joined (kInvalidArgument).
  std::span<uint32_t> checksums = {};
  // Over shared memory, pieces before this one have moved before it or any after it begins; 0: none
  // waits. Between a network or a device and memory pieces move in any order.
  size_t barrier = 0;
  // The target is large and was not used lately: smaller batches go past the caches as well.
  bool is_cold = false;

  // kCancelled or kTimeout once the batch should give up.
  Status CheckTime() const {
    if (cancel != nullptr && cancel->is_set()) {
      return Status(Code::kCancelled, "the batch was cancelled");
    }
    if (deadline.passed()) return Status(Code::kTimeout, "the batch did not end in time");
    return Status::Ok();
  }
};

// What the owner is told once every byte of a batch is where it should be.
using Note = std::optional<std::string>;

enum class SameHost : uint8_t {
  kShm,      // map the memory of peers on this host
  kNetwork,  // reach peers on this host as any other
};

struct EngineOptions {
  std::string listen = "127.0.0.1:0";  // host:port, [v6]:port; port 0 takes a free one
  SameHost same_host = SameHost::kShm;
  int io_threads = 2;   // carry out submitted batches
  double hello_s = 10;  // how long a connection to this engine may take to say who it is
  std::vector<std::string> addresses;  // further addresses of this host, each a path of its own
  int serve_threads = 1;               // move the bytes of TCP peers
  int copy_threads = 1;             // help whoever copies much over shared memory; 0: nobody does
  uint64_t slice_bytes = 1u << 20;  // at most so much at once on one path
  // Location of memory -> the local addresses near it. A path over another one is second choice.
  // A location that is absent is near to all.
  std::map<std::string, std::vector<std::string>> preferred;
};

// What one path has done so far.
struct PathStatistics {
  std::string peer = {};       // its endpoint
  std::string transport = {};  // "shm" or "tcp"
  std::string local = {};      // address; empty: the kernel chooses
  std::string remote = {};     // address
  std::string state = {};      // "up", "quarantined", "probing" or "gone"
  std::string reason = {};     // of the last quarantine
  uint64_t read_bytes = 0;
  uint64_t written_bytes = 0;
  uint64_t slices = 0;         // completed
  uint64_t resent_slices = 0;  // began here, and were completed on another path or connection
  uint64_t failures = 0;       // connections that died or were given up
  uint64_t quarantines = 0;
  uint64_t connections = 0;      // open now
  uint64_t in_flight_bytes = 0;  // now
  double rate_bytes_per_s = 0;   // as last measured
};

}  // namespace mooncake
