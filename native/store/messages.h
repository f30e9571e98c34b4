// What clients, store nodes and the master say to each other, as values. Pure; `codec` puts them
// on the wire. Each carries a list and is answered by a list of the same length and order.
//
// Ownership: keys are views: of the caller's memory where a message is made, of the frame's body
// where it was decoded. They must outlive the message.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace mooncake::store {

// Payload follows a header of this size in each extent.
inline constexpr uint64_t kHeaderBytes = 64;
inline constexpr uint64_t kChunkBytes = 256 * 1024;
inline constexpr uint64_t kMaxKeyBytes = 64 * 1024;
inline constexpr uint32_t kMaxReplicas = 16;
inline constexpr size_t kMaxPreferred = 64;      // names of nodes of one put
inline constexpr size_t kMaxBatch = 1'024;       // keys of one message
inline constexpr size_t kMaxOpenPuts = 65'536;   // of one session
inline constexpr uint64_t kMaxChunks = 1 << 20;  // of one object: 256 GiB in whole chunks
inline constexpr uint64_t kFewChunks = 1'024;    // that an object may have whatever its size,
inline constexpr uint64_t kBytesAChunk = 4'096;  // and one more for each of these
inline constexpr uint64_t kMaxObjectBytes = 1ull << 48;
inline constexpr uint64_t kMaxExtents = 4096;  // of an object, in all its copies
inline constexpr uint64_t kMaxNodeBytes = 1ull << 50;
inline constexpr size_t kMaxNameBytes = 256;  // of an endpoint, a host id, a node or a domain
inline constexpr uint64_t kMaxAnswerBytes = 48u << 20;  // with room for the frame
inline constexpr const char* kAnswerTooLong =
    "the answer takes more than 48 MiB; ask for fewer at once";
// A node that is silent is suspected after the time to live, and lost after so many of them.
inline constexpr double kNodeLostAfter = 2;

// A node is named by its segment: a node that takes new memory is another node.
using NodeId = uint64_t;
using SessionId = uint64_t;

// A node as others reach it.
struct NodeAddress {
  NodeId node = 0;
  std::string endpoint;
  bool operator==(const NodeAddress&) const = default;
};

// Where one stripe of one copy is. A message has a table of the nodes that it names, and lists the
// placements of all its items one after another: copy by copy, of each copy its stripes in order.
struct Placement {
  uint32_t node = 0;    // index into the message's `nodes`
  uint64_t offset = 0;  // of the header, in the node's segment
};

struct Hello {
  SessionId session = 0;   // the new one; random, chosen by the server
  SessionId previous = 0;  // ended by this; 0: none
  uint64_t peer_id = 0;    // of the client's transfer engine
  std::string host_id;     // where it runs; for local-first placement
};
struct HelloReply {
  bool is_fenced = false;  // this peer id was revoked: rotate and say hello again
  SessionId session = 0;
  uint64_t epoch = 0;
  double client_ttl_s = 0;
  double lease_s = 0;
};

// A pin whose number the client never heard (its answer was lost) would have no end. So the client
// lists those that it has, as far as the answer to its last heartbeat said that numbers were given,
// and at a moment when no pin of its own is being asked for: what is missing then is nobody's.
struct Heartbeat {
  SessionId session = 0;
  std::vector<uint64_t> leases;  // to renew
  std::vector<uint64_t> pins;    // all that it has, with numbers above the first
  uint64_t pins_after = 0;       // of these,
  uint64_t pins_upto = 0;        // up to and with the second; 0: nothing is said of pins
};
struct HeartbeatReply {
  bool is_known = false;  // false: say hello again
  uint64_t epoch = 0;
  std::vector<uint64_t> ended;  // leases that could not be renewed
  uint64_t last_lease = 0;      // the last number that was given
};

enum class Pin : uint8_t {
  kNone = 0,
  kSoft = 1,  // goes only when nothing without a pin is left; ends by time
  kHard = 2,  // never evicted
};
// How an object is to be kept; several items of a message share one.
struct PutOptions {
  uint32_t replicas = 1;
  bool is_strict = false;  // all copies, or kTooFewNodes or kOutOfSpace; else as many as can be
  bool is_upsert = false;  // replaces what is there when it ends
  Pin pin = Pin::kNone;
  double soft_pin_s = 0;
  bool has_checksums = true;
  std::vector<std::string> preferred{};  // names of nodes to be tried first, in this order
};
struct PutStart {
  struct Item {
    uint64_t put_id = 0;  // chosen by the client, unique in its session
    std::string_view key{};
    uint64_t size_bytes = 0;
    uint64_t part_bytes = 0;    // 0: one part
    uint32_t options = 0;       // index into `options`
    std::string_view parent{};  // key of what stands before it in its chain; empty: none
    uint32_t depth = 0;         // how many stand before it
    std::string_view group{};   // lives and dies with its other members; empty: none
    uint32_t group_size = 0;    // members without which none is readable; 0: not known
  };
  SessionId session = 0;
  std::vector<PutOptions> options;
  std::vector<Item> items;
};
enum class PutOutcome : uint8_t {
  kStarted = 0,
  kExists = 1,  // committed
  kBusy = 2,    // another put of it has not ended
  kOutOfSpace = 3,
  kAborted = 4,      // its abort came first
  kInvalid = 5,      // key, size or options out of bounds, or kMaxOpenPuts are open
  kMakingRoom = 6,   // objects are being evicted for it: ask again, with the same id
  kNotAdmitted = 7,  // the admission policy does not want it
  kTooFewNodes = 8,  // strict, and there are not so many domains
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
    uint64_t stripe_bytes = 0;  // 0: one stripe
    uint32_t copies = 0;        // kTooFewNodes: there could be so many
  };
  bool is_known = false;
  uint64_t peer_id = 0;  // the only engine that may write
  std::vector<Item> items;
  std::vector<NodeAddress> nodes;
  std::vector<Placement> placements;
  Space space;  // set when an outcome is kOutOfSpace
};

struct PutEnd {
  struct Item {
    uint64_t put_id = 0;
    std::string_view key{};
    uint64_t generation = 0;
    std::vector<uint64_t> lost;  // numbers of copies that are not to be part of the object
    std::vector<NodeId> dirty;   // nodes where a write to a lost copy may still be going on
    std::vector<NodeId> failed;  // nodes that did not take a write, dirty or not
    uint64_t checksums = 0;      // so many of the message's are its own
  };
  SessionId session = 0;
  std::vector<Item> items;
  std::vector<uint32_t> checksums;  // CRC-32C a chunk, of all items, in order
};
// No copy is kept. Of all of them: `dirty` and `failed` nodes, as of the lost ones of a PutEnd.
struct PutAbort {
  struct Item {
    uint64_t put_id = 0;
    std::vector<NodeId> dirty;
    std::vector<NodeId> failed;
  };
  SessionId session = 0;
  std::vector<Item> items;
};
enum class EndOutcome : uint8_t {
  kDone = 0,        // visible (end) or gone (abort); also when said twice
  kUnknown = 1,     // no such put, or its object is gone
  kInvalid = 2,     // wrong count of checksums, or another generation
  kSuperseded = 3,  // an upsert took the key meanwhile; gone
  kGroupGone = 4,   // its group has died with another member; gone
};
struct PutEndReply {
  bool is_known = false;
  std::vector<EndOutcome> outcomes;
};

struct Lookup {
  SessionId session = 0;
  bool stop_at_miss = false;       // lease the leading run only
  bool is_pin = false;             // a lease that time does not end
  std::vector<uint64_t> released;  // leases that are given back with this
  std::vector<std::string_view> keys;
};
struct LookupReply {
  struct Item {
    bool found = false;
    bool has_checksums = false;
    uint64_t size_bytes = 0;
    uint64_t part_bytes = 0;
    uint64_t stripe_bytes = 0;  // 0: one stripe
    uint64_t generation = 0;
    uint32_t copies = 0;
  };
  bool is_known = false;
  bool is_too_large = false;  // all of it would not fit a frame: nothing is leased, ask for fewer
  uint64_t lease = 0;         // 0: nothing was found
  std::vector<Item> items;
  std::vector<NodeAddress> nodes;
  std::vector<Placement> placements;
  std::vector<uint32_t> checksums;
};

struct Release {
  SessionId session = 0;
  std::vector<uint64_t> leases;
};

// What the master knows of an object, for people and tools; no lease.
struct ObjectInfo {
  std::string key;
  bool is_there = false;  // readable now
  uint64_t size_bytes = 0;
  uint64_t part_bytes = 0;
  uint64_t generation = 0;
  Pin pin = Pin::kNone;
  uint32_t leases = 0;
  uint32_t depth = 0;
  std::string group;
  std::vector<uint64_t> copies;  // the first node of each: index into the message's `nodes`
  std::vector<uint64_t> nodes;   // that have a part of a copy, each once
};
struct Describe {
  std::vector<std::string_view> keys;
};
// Objects whose key starts with `prefix`, in no order. One that is there from the first page to the
// last is in one of them, once.
struct List {
  uint64_t cursor = 0;  // 0: from the start; else from the last answer
  uint32_t limit = 0;
  std::string_view prefix{};
};
struct Objects {
  uint64_t cursor = 0;             // 0: that was all
  std::vector<std::string> nodes;  // names
  std::vector<ObjectInfo> objects;
};

struct SetPin {
  Pin pin = Pin::kNone;
  double soft_pin_s = 0;
  std::vector<std::string_view> keys;
};

// kUndrain is no task of its own: it ends the drain of a node, which may have emptied it already,
// and the node takes objects again.
enum class TaskKind : uint8_t { kCopy = 0, kMove = 1, kDrain = 2, kUndrain = 3 };
enum class TaskState : uint8_t { kRunning = 0, kDone = 1, kFailed = 2, kCancelled = 3 };
struct TaskCreate {
  TaskKind kind = TaskKind::kCopy;
  std::string_view key{};            // copy and move
  std::string source;                // move, drain and undrain: the node's name
  std::vector<std::string> targets;  // copy and move: names; empty: where placement wants it
};
struct TaskCreated {
  uint64_t task = 0;    // 0: refused; of an undrain the drain that it has ended
  std::string problem;  // why
};
struct TaskQuery {
  std::vector<uint64_t> tasks;  // empty: all that are remembered
  bool is_cancel = false;       // end them where they are
};
struct TaskInfo {
  uint64_t task = 0;
  TaskKind kind = TaskKind::kCopy;
  TaskState state = TaskState::kRunning;
  std::string key, source;
  uint64_t done_objects = 0, total_objects = 0;
  uint64_t done_bytes = 0, total_bytes = 0;
  double age_s = 0;
  std::string problem;  // why it failed, or what it waits for
};
struct Tasks {
  std::vector<TaskInfo> tasks;
};

struct NodeRegister {
  NodeId node = 0;     // 0 names nobody and is refused
  uint64_t epoch = 0;  // the one that the segment was made for
  std::string endpoint;
  std::string host_id;
  std::string name;    // unique among the nodes that are not lost; empty: the endpoint
  std::string domain;  // no two copies of an object in one; empty: the host id
  uint64_t capacity_bytes = 0;
};
// One stripe that a node is to fetch into its own segment.
struct CopyOrder {
  uint64_t order = 0;
  std::vector<NodeAddress> nodes;
  std::vector<Placement> sources;   // of the same stripe, each as good; tried in order
  uint64_t generation = 0;          // that the stripe's header has
  uint64_t offset = 0;              // of the header, in the node's own segment
  uint64_t bytes = 0;               // of the payload
  uint64_t part_bytes = 0;          // chunks are cut from the stripe's start, as an object's
  std::vector<uint32_t> checksums;  // empty: it has none
};
struct CopyResult {
  uint64_t order = 0;
  bool is_done = false;         // verified, and in place
  std::vector<NodeId> corrupt;  // sources whose bytes are wrong
};
struct NodeHeartbeat {
  NodeId node = 0;
  std::vector<uint64_t> fenced;      // peer ids that are fully fenced here
  std::vector<CopyResult> finished;  // repeated until the order is not in the answer any more
};
enum class NodeRefusal : uint8_t {
  kNone = 0,
  kNameTaken = 1,  // by a node with another endpoint: once that one is lost, it is free
  kInvalid = 2,    // what it says of itself cannot be
};
struct NodeReply {
  bool is_known = false;  // false: take new memory and register it, unless it was refused
  uint64_t epoch = 0;
  double client_ttl_s = 0;
  std::vector<uint64_t> fence;    // peer ids to fence; repeated until they are in `fenced`
  std::vector<CopyOrder> orders;  // repeated until they are in `finished`
  NodeRefusal refusal = NodeRefusal::kNone;
  std::string problem;  // what was refused, and what would be right
};

enum class NodeState : uint8_t { kOnline = 0, kSuspected = 1, kDraining = 2 };
struct NodeStats {
  NodeId node = 0;
  std::string endpoint, host_id, name, domain;
  uint64_t capacity = 0, used = 0, quarantined = 0;
  NodeState state = NodeState::kOnline;
};
struct Counters {
  uint64_t puts = 0, gets = 0, hits = 0, misses = 0, evictions = 0, out_of_space = 0, aborts = 0;
  uint64_t expired_sessions = 0, lost_nodes = 0, fences = 0, corrupt = 0;
  uint64_t evicted_bytes = 0, not_admitted = 0, superseded = 0, making_room = 0;
  // Copies made in the background: in place of lost ones, off a node, of hot objects, by copy
  // tasks.
  uint64_t repaired_copies = 0, moved_copies = 0, hot_copies = 0, asked_copies = 0;
  uint64_t failed_copies = 0;
};
struct Stats {
  uint64_t epoch = 0;
  uint64_t clients = 0, objects = 0, writing = 0, leases = 0, groups = 0;
  uint64_t soft_pinned = 0, hard_pinned = 0;  // bytes
  double fragmentation = 0;                   // share of the free bytes beyond the largest extents
  uint64_t tasks = 0, copy_orders = 0, hot_objects = 0;  // under way, now
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

// More chunks than its bytes are worth would fill the master's memory with checksums.
constexpr uint64_t MostChunks(uint64_t size_bytes) {
  const uint64_t most = kFewChunks + size_bytes / kBytesAChunk;
  return most < kMaxChunks ? most : kMaxChunks;
}

// Into stripes of how many bytes an object is cut, about `limit_bytes` of whole chunks each; 0: it
// is one stripe.
constexpr uint64_t StripeBytes(uint64_t size_bytes, uint64_t part_bytes, uint64_t limit_bytes) {
  const bool has_parts = part_bytes != 0 && part_bytes < size_bytes;
  const uint64_t unit = has_parts ? part_bytes : kChunkBytes;
  const uint64_t stripe = limit_bytes / unit > 0 ? limit_bytes / unit * unit : unit;
  return size_bytes > stripe ? stripe : 0;
}
constexpr uint64_t StripeCount(uint64_t size_bytes, uint64_t stripe_bytes) {
  return stripe_bytes == 0 ? 1 : (size_bytes + stripe_bytes - 1) / stripe_bytes;
}

}  // namespace mooncake::store
