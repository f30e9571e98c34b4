// How store messages look on the wire: msgpack, every struct a fixed array of its fields in the
// order of `Fields`, seconds as whole microseconds, keys, checksums and placements as bin.
//
// Thread safety: pure.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <type_traits>
#include <vector>

#include "base/status.h"
#include "store/messages.h"
#include "wire/bytes.h"
#include "wire/msgpack.h"

namespace mooncake::store {

// Type of a frame. An answer has the question's type and kAnswer; an error is kError alone.
// Request id 0 asks for no answer.
enum class MessageType : uint8_t {
  kHello = 1,
  kHeartbeat = 2,
  kGoodbye = 3,
  kPutStart = 4,
  kPutEnd = 5,
  kPutAbort = 6,
  kLookup = 7,
  kRelease = 8,
  kExists = 9,
  kMatchPrefix = 10,
  kRemove = 11,
  kCorrupt = 12,
  kNodeRegister = 13,
  kNodeHeartbeat = 14,
  kNodeGoodbye = 15,
  kStats = 16,
  kDescribe = 17,
  kList = 18,
  kSetPin = 19,
  kTaskCreate = 20,
  kTaskQuery = 21,
};
inline constexpr size_t kMaxItems = 65'536;  // of any list in a body
inline constexpr uint8_t kAnswer = 0x80;
inline constexpr uint8_t kError = 0xff;

// Bodies that are no event of the core's own.
struct One {
  uint64_t value = 0;  // a session, a node, or a count
};
struct Keys {
  std::vector<std::string_view> keys;
};
struct Flags {
  std::vector<bool> flags;
};
struct CorruptReport {
  std::string_view key;
  uint64_t generation = 0;
  NodeId node = 0;  // whose bytes are wrong; 0: every copy's
};
struct ErrorBody {
  uint32_t code = 0;
  std::string message;
};

// The fields of each message, in order: the one place that knows them. A Hello's own session is
// not among them: the server chooses it.
template <typename A>
auto Fields(A& a, One& m) {
  return a(m.value);
}
template <typename A>
auto Fields(A& a, Keys& m) {
  return a(m.keys);
}
template <typename A>
auto Fields(A& a, Flags& m) {
  return a(m.flags);
}
template <typename A>
auto Fields(A& a, CorruptReport& m) {
  return a(m.key, m.generation, m.node);
}
template <typename A>
auto Fields(A& a, ErrorBody& m) {
  return a(m.code, m.message);
}
template <typename A>
auto Fields(A& a, NodeAddress& m) {
  return a(m.node, m.endpoint);
}
template <typename A>
auto Fields(A& a, Hello& m) {
  return a(m.previous, m.peer_id, m.host_id);
}
template <typename A>
auto Fields(A& a, HelloReply& m) {
  return a(m.is_fenced, m.session, m.epoch, m.client_ttl_s, m.lease_s);
}
template <typename A>
auto Fields(A& a, Heartbeat& m) {
  return a(m.session, m.leases, m.pins, m.pins_after, m.pins_upto);
}
template <typename A>
auto Fields(A& a, HeartbeatReply& m) {
  return a(m.is_known, m.epoch, m.ended, m.last_lease);
}
template <typename A>
auto Fields(A& a, PutOptions& m) {
  return a(m.replicas, m.is_strict, m.is_upsert, m.pin, m.soft_pin_s, m.has_checksums, m.preferred);
}
template <typename A>
auto Fields(A& a, PutStart::Item& m) {
  return a(m.put_id, m.key, m.size_bytes, m.part_bytes, m.options, m.parent, m.depth, m.group,
           m.group_size);
}
template <typename A>
auto Fields(A& a, PutStart& m) {
  return a(m.session, m.options, m.items);
}
template <typename A>
auto Fields(A& a, PutStartReply::Item& m) {
  return a(m.outcome, m.generation, m.stripe_bytes, m.copies);
}
template <typename A>
auto Fields(A& a, Space& m) {
  return a(m.capacity, m.used, m.evictable, m.pinned, m.quarantined, m.largest_free_extent);
}
template <typename A>
auto Fields(A& a, PutStartReply& m) {
  return a(m.is_known, m.peer_id, m.items, m.nodes, m.placements, m.space);
}
template <typename A>
auto Fields(A& a, PutEnd::Item& m) {
  return a(m.put_id, m.key, m.generation, m.lost, m.dirty, m.failed, m.checksums);
}
template <typename A>
auto Fields(A& a, PutEnd& m) {
  return a(m.session, m.items, m.checksums);
}
template <typename A>
auto Fields(A& a, PutAbort::Item& m) {
  return a(m.put_id, m.dirty, m.failed);
}
template <typename A>
auto Fields(A& a, PutAbort& m) {
  return a(m.session, m.items);
}
template <typename A>
auto Fields(A& a, PutEndReply& m) {
  return a(m.is_known, m.outcomes);
}
template <typename A>
auto Fields(A& a, Lookup& m) {
  return a(m.session, m.stop_at_miss, m.is_pin, m.released, m.keys);
}
template <typename A>
auto Fields(A& a, LookupReply::Item& m) {
  return a(m.found, m.has_checksums, m.size_bytes, m.part_bytes, m.stripe_bytes, m.generation,
           m.copies);
}
template <typename A>
auto Fields(A& a, LookupReply& m) {
  return a(m.is_known, m.is_too_large, m.lease, m.items, m.nodes, m.placements, m.checksums);
}
template <typename A>
auto Fields(A& a, Release& m) {
  return a(m.session, m.leases);
}
template <typename A>
auto Fields(A& a, NodeRegister& m) {
  return a(m.node, m.epoch, m.endpoint, m.host_id, m.name, m.domain, m.capacity_bytes);
}
template <typename A>
auto Fields(A& a, CopyOrder& m) {
  return a(m.order, m.nodes, m.sources, m.generation, m.offset, m.bytes, m.part_bytes, m.checksums);
}
template <typename A>
auto Fields(A& a, CopyResult& m) {
  return a(m.order, m.is_done, m.corrupt);
}
template <typename A>
auto Fields(A& a, NodeHeartbeat& m) {
  return a(m.node, m.fenced, m.finished);
}
template <typename A>
auto Fields(A& a, NodeReply& m) {
  return a(m.is_known, m.epoch, m.client_ttl_s, m.fence, m.orders, m.refusal, m.problem);
}
template <typename A>
auto Fields(A& a, NodeStats& m) {
  return a(m.node, m.endpoint, m.host_id, m.name, m.domain, m.capacity, m.used, m.quarantined,
           m.state);
}
template <typename A>
auto Fields(A& a, Counters& m) {
  return a(m.puts, m.gets, m.hits, m.misses, m.evictions, m.out_of_space, m.aborts,
           m.expired_sessions, m.lost_nodes, m.fences, m.corrupt, m.evicted_bytes, m.not_admitted,
           m.superseded, m.making_room, m.repaired_copies, m.moved_copies, m.hot_copies,
           m.asked_copies, m.failed_copies);
}
template <typename A>
auto Fields(A& a, Stats& m) {
  return a(m.epoch, m.clients, m.objects, m.writing, m.leases, m.groups, m.soft_pinned,
           m.hard_pinned, m.fragmentation, m.tasks, m.copy_orders, m.hot_objects, m.space,
           m.counters, m.nodes);
}

template <typename A>
auto Fields(A& a, ObjectInfo& m) {
  return a(m.key, m.is_there, m.size_bytes, m.part_bytes, m.generation, m.pin, m.leases, m.depth,
           m.group, m.copies, m.nodes);
}
template <typename A>
auto Fields(A& a, Describe& m) {
  return a(m.keys);
}
template <typename A>
auto Fields(A& a, List& m) {
  return a(m.cursor, m.limit, m.prefix);
}
template <typename A>
auto Fields(A& a, Objects& m) {
  return a(m.cursor, m.nodes, m.objects);
}
template <typename A>
auto Fields(A& a, SetPin& m) {
  return a(m.pin, m.soft_pin_s, m.keys);
}
template <typename A>
auto Fields(A& a, TaskCreate& m) {
  return a(m.kind, m.key, m.source, m.targets);
}
template <typename A>
auto Fields(A& a, TaskCreated& m) {
  return a(m.task, m.problem);
}
template <typename A>
auto Fields(A& a, TaskQuery& m) {
  return a(m.tasks, m.is_cancel);
}
template <typename A>
auto Fields(A& a, TaskInfo& m) {
  return a(m.task, m.kind, m.state, m.key, m.source, m.done_objects, m.total_objects, m.done_bytes,
           m.total_bytes, m.age_s, m.problem);
}
template <typename A>
auto Fields(A& a, Tasks& m) {
  return a(m.tasks);
}

// Appends values to a body.
class Packer {
 public:
  explicit Packer(std::vector<uint8_t>& out) : out_(out) {}

  template <typename... T>
  bool operator()(T&... fields) {
    out_.Array(sizeof...(T));
    (Put(fields), ...);
    return true;
  }

 private:
  void Put(bool value) { out_.Bool(value); }
  void Put(uint32_t value) { out_.Uint(value); }
  void Put(uint64_t value) { out_.Uint(value); }
  void Put(double value) { out_.Uint(static_cast<uint64_t>(value * 1e6)); }
  void Put(std::string& value) { out_.Bin(std::string_view(value)); }
  void Put(std::string_view& value) { out_.Bin(value); }
  void Put(std::vector<bool>& value);
  void Put(std::vector<uint32_t>& value);
  void Put(std::vector<Placement>& value);
  template <typename E>
    requires std::is_enum_v<E>
  void Put(E value) {
    out_.Uint(static_cast<uint64_t>(value));
  }
  template <typename T>
  void Put(std::vector<T>& values) {
    out_.Array(values.size());
    for (T& value : values) Put(value);
  }
  template <typename M>
    requires std::is_class_v<M>
  void Put(M& message) {
    Fields(*this, message);
  }

  MsgpackWriter out_;
};

// Reads values out of a body; false once something does not fit.
class Unpacker {
 public:
  explicit Unpacker(std::span<const uint8_t> body) : in_(body) {}

  template <typename... T>
  bool operator()(T&... fields) {
    return in_.ArrayOf(sizeof...(T)) && (Get(fields) && ...);
  }
  bool done() const { return in_.done(); }

 private:
  bool Get(bool& value) { return in_.Bool(value); }
  bool Get(uint32_t& value) { return in_.UintAs(value); }
  bool Get(uint64_t& value) { return in_.Uint(value); }
  bool Get(double& value);
  bool Get(std::string& value);
  bool Get(std::string_view& value) { return in_.Bin(value); }
  bool Get(std::vector<bool>& value);
  bool Get(std::vector<uint32_t>& value);
  bool Get(std::vector<Placement>& value);
  template <typename E>
    requires std::is_enum_v<E>
  bool Get(E& value) {
    uint8_t number = 0;
    if (!in_.UintAs(number)) return false;
    value = static_cast<E>(number);
    return true;
  }
  template <typename T>
  bool Get(std::vector<T>& values) {
    size_t count = 0;
    if (!in_.Array(count) || count > kMaxItems) return false;
    values.resize(count);
    for (T& value : values) {
      if (!Get(value)) return false;
    }
    return true;
  }
  template <typename M>
    requires std::is_class_v<M>
  bool Get(M& message) {
    return Fields(*this, message);
  }

  MsgpackReader in_;
};

template <typename M>
void Encode(const M& message, std::vector<uint8_t>& out) {
  Packer packer(out);
  Fields(packer, const_cast<M&>(message));  // a Packer changes nothing
}

// kWire when the body is not exactly such a message. Views in it are of `body`.
template <typename M>
Result<M> Decode(std::span<const uint8_t> body) {
  M message;
  Unpacker unpacker(body);
  if (Fields(unpacker, message) && unpacker.done()) return message;
  return Status(Code::kWire, "a message body of " + std::to_string(body.size()) +
                                 " bytes is not what its type says");
}

}  // namespace mooncake::store
