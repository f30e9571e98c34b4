// What clients, store nodes and the master say to each other, as values. Pure; `codec` puts them
// on the wire. Each carries a list and is answered by a list of the same length and order.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace mooncake::store {

// Payload follows a header of this size in each extent.
inline constexpr uint64_t kHeaderBytes = 64;
inline constexpr uint64_t kChunkBytes = 256 * 1024;
inline constexpr uint64_t kMaxKeyBytes = 64 * 1024;
inline constexpr uint32_t kMaxReplicas = 16;
inline constexpr size_t kMaxBatch = 65'536;
inline constexpr uint64_t kMaxChunks = 1 << 20;  // of one object: 256 GiB in whole chunks
inline constexpr uint64_t kMaxNodeBytes = 1ull << 50;
inline constexpr size_t kMaxNameBytes = 256;  // of an endpoint or a host id

// A node is named by its segment: a node that takes new memory is another node.
using NodeId = uint64_t;
using SessionId = uint64_t;

// Where one copy of an object is.
struct Placement {
  NodeId node = 0;
  std::string endpoint;
  uint64_t offset = 0;  // of the header, in the node's segment
};

struct Hello {
  SessionId session = 0;   // the new one; random, chosen by the server
  SessionId previous = 0;  // ended by this; 0: none
  uint64_t peer_id = 0;    // of the client's transfer engine
};
struct HelloReply {
  bool is_fenced = false;  // this peer id was revoked: rotate and say hello again
  SessionId session = 0;
  uint64_t epoch = 0;
  double client_ttl_s = 0;
  double lease_s = 0;
};

struct Heartbeat {
  SessionId session = 0;
  std::vector<uint64_t> leases;  // to renew
};
struct HeartbeatReply {
  bool is_known = false;  // false: say hello again
  uint64_t epoch = 0;
  std::vector<uint64_t> ended;  // leases that could not be renewed
};

struct PutStart {
  struct Item {
    uint64_t put_id = 0;  // chosen by the client, unique in its session
    std::string key;
    uint64_t size_bytes = 0;
    uint64_t part_bytes = 0;  // 0: one part
    uint32_t replicas = 1;
  };
  SessionId session = 0;
  std::vector<Item> items;
};
enum class PutOutcome : uint8_t {
  kStarted = 0,
  kExists = 1,  // committed
  kBusy = 2,    // another put of it has not ended
  kOutOfSpace = 3,
  kAborted = 4,  // its abort came first
  kInvalid = 5,  // key or size out of bounds
};
// Why there was no room. In bytes, over all nodes that take new objects.
struct Space {
  uint64_t capacity = 0, used = 0, evictable = 0, pinned = 0, quarantined = 0;
  uint64_t largest_free_extent = 0;
};
struct PutStartReply {
  struct Item {
    PutOutcome outcome = PutOutcome::kInvalid;
    uint64_t generation = 0;
    std::vector<Placement> placements;
  };
  bool is_known = false;
  uint64_t peer_id = 0;  // the only engine that may write
  std::vector<Item> items;
  Space space;  // set when an outcome is kOutOfSpace
};

struct PutEnd {
  struct Item {
    uint64_t put_id = 0;
    std::string key;
    uint64_t generation = 0;
    std::vector<uint32_t> checksums;  // CRC-32C a chunk
    std::vector<NodeId> dropped;      // copies not written, never touched or all writes confirmed
    std::vector<NodeId> dirty;        // copies whose write may still be going on
  };
  SessionId session = 0;
  std::vector<Item> items;
};
// An abort is a PutEnd that keeps no copy: `dirty` names those that may still be written.
struct PutAbort {
  struct Item {
    uint64_t put_id = 0;
    std::vector<NodeId> dirty;
  };
  SessionId session = 0;
  std::vector<Item> items;
};
enum class EndOutcome : uint8_t {
  kDone = 0,     // visible (end) or gone (abort); also when said twice
  kUnknown = 1,  // no such put, or its object is gone
  kInvalid = 2,  // wrong count of checksums, or another generation
};
struct PutEndReply {
  bool is_known = false;
  std::vector<EndOutcome> outcomes;
};

struct Lookup {
  SessionId session = 0;
  bool stop_at_miss = false;  // lease the leading run only
  std::vector<std::string> keys;
};
struct LookupReply {
  struct Item {
    bool found = false;
    uint64_t size_bytes = 0;
    uint64_t part_bytes = 0;
    uint64_t generation = 0;
    std::vector<Placement> placements;
    std::vector<uint32_t> checksums;
  };
  bool is_known = false;
  bool is_too_large = false;  // the whole answer would not fit a frame; nothing was leased
  uint64_t lease = 0;         // 0: nothing was found
  std::vector<Item> items;
};

struct Release {
  SessionId session = 0;
  std::vector<uint64_t> leases;
};

struct NodeRegister {
  NodeId node = 0;     // 0 names nobody and is refused
  uint64_t epoch = 0;  // the one that the segment was made for
  std::string endpoint;
  std::string host_id;
  uint64_t capacity_bytes = 0;
};
struct NodeHeartbeat {
  NodeId node = 0;
  std::vector<uint64_t> fenced;  // peer ids that are fully fenced here
};
struct NodeReply {
  bool is_known = false;  // false: take new memory and register it
  uint64_t epoch = 0;
  double client_ttl_s = 0;
  std::vector<uint64_t> fence;  // peer ids to fence; repeated until they are in `fenced`
};

enum class NodeState : uint8_t { kOnline = 0, kSuspected = 1 };
struct NodeStats {
  NodeId node = 0;
  std::string endpoint, host_id;
  uint64_t capacity = 0, used = 0, quarantined = 0;
  NodeState state = NodeState::kOnline;
};
struct Counters {
  uint64_t puts = 0, gets = 0, hits = 0, misses = 0, evictions = 0, out_of_space = 0, aborts = 0;
  uint64_t expired_sessions = 0, lost_nodes = 0, fences = 0, corrupt = 0;
};
struct Stats {
  uint64_t epoch = 0;
  uint64_t clients = 0, objects = 0, writing = 0, leases = 0;
  Space space;
  Counters counters;
  std::vector<NodeStats> nodes;
};

// How many chunks an object has: parts of part_bytes, each cut into chunks of at most kChunkBytes.
constexpr uint64_t ChunksOf(uint64_t bytes) { return (bytes + kChunkBytes - 1) / kChunkBytes; }
constexpr uint64_t ChunkCount(uint64_t size_bytes, uint64_t part_bytes) {
  if (part_bytes == 0 || part_bytes >= size_bytes) return ChunksOf(size_bytes);
  return size_bytes / part_bytes * ChunksOf(part_bytes) + ChunksOf(size_bytes % part_bytes);
}

}  // namespace mooncake::store
