// MasterCore: what exists in the store, where, who reads and who writes it. Pure: every event is a
// Step with the time, which answers with what to say; no I/O, clock, thread or randomness.
//
// Thread safety: none; one owner.
// Invariants (`Check`): the extents of objects and of quarantine never overlap and sum up to what
// the allocators say; a copy is in exactly one list of its node; only objects without leases are in
// an eviction list, in order of use; leases belong to sessions that are there; a key has one
// object.
//
// An extent that a writer has not confirmed to be done with is quarantined under the writer's peer
// id, until its node says that it has fenced that id, or is lost itself. Time alone frees nothing
// that can still be written. Time does end leases: readers verify what they read.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "store/allocator.h"
#include "store/messages.h"
#include "store/object_table.h"

namespace mooncake::store {

struct MasterOptions {
  uint64_t epoch = 0;       // random, of this start
  double client_ttl_s = 3;  // silence after which a session ends
  double lease_s = 5;       // how long a lease lives unless it is renewed
};

class MasterCore {
 public:
  // When this long passes between two steps, it was the master that stood still: deadlines move.
  static constexpr double kStall_s = 0.5;

  explicit MasterCore(const MasterOptions& options) : options_(options) {}
  MasterCore(const MasterCore&) = delete;
  MasterCore& operator=(const MasterCore&) = delete;

  HelloReply Step(const Hello& event, double now_s);
  HeartbeatReply Step(const Heartbeat& event, double now_s);
  void Goodbye(SessionId session, double now_s);

  PutStartReply Step(const PutStart& event, double now_s);
  PutEndReply Step(const PutEnd& event, double now_s);
  PutEndReply Step(const PutAbort& event, double now_s);

  LookupReply Step(const Lookup& event, double now_s);
  void Step(const Release& event, double now_s);
  std::vector<bool> Exists(std::span<const std::string_view> keys) const;
  uint64_t MatchPrefix(std::span<const std::string_view> keys) const;
  std::vector<bool> Remove(std::span<const std::string_view> keys);
  // A reader found a copy whose bytes do not match: the object goes, unless it is another by now.
  void ReportCorrupt(std::string_view key, uint64_t generation);

  NodeReply Step(const NodeRegister& event, double now_s);
  NodeReply Step(const NodeHeartbeat& event, double now_s);
  void NodeGoodbye(NodeId node);
  // Its connection broke. It is given client_ttl_s to come back; nobody is sent there meanwhile.
  void NodeDisconnected(NodeId node, double now_s);

  // Ends what is overdue. The shell calls it every 100 ms or so.
  void Tick(double now_s);

  Stats Report() const;
  uint64_t epoch() const { return options_.epoch; }
  void Check() const;

 private:
  struct Quarantine {
    std::vector<Extent> extents;
  };
  struct Node {
    NodeId id = 0;
    std::string endpoint, host_id, name, domain;
    NodeState state = NodeState::kOnline;
    double seen_s = 0, lost_s = 0;
    std::optional<Allocator> allocator;  // none: the slot is free
    CopyList evictable, busy;
    std::unordered_map<uint64_t, Quarantine> quarantine;  // by the writer's peer id
    uint64_t quarantined_bytes = 0;
  };
  struct Session {
    uint64_t peer_id = 0;
    double seen_s = 0;
    std::unordered_map<uint64_t, uint32_t> puts;  // put id -> object
    std::unordered_set<uint64_t> leases;
    std::unordered_set<uint64_t> early_aborts;  // ids whose abort overtook their start
    std::deque<uint64_t> early_aborts_by_arrival;
  };
  struct Lease {
    SessionId session = 0;
    double end_s = 0;
    std::vector<uint32_t> objects;
    std::list<uint64_t>::iterator by_end;
  };

  double Advance(double now_s);
  Session* Known(SessionId session, double now_s);
  void EndSession(SessionId session);

  PutStartReply::Item StartPut(const PutStart& event, const PutStart::Item& item, Session& owner,
                               PutStartReply& reply);
  PutStartReply::Item Grant(uint32_t index, PutStartReply& reply) const;
  EndOutcome EndPut(Session& owner, const PutEnd::Item& item, std::span<const uint32_t>& checksums);
  EndOutcome AbortPut(Session& owner, const PutAbort::Item& item);
  static void MarkAborted(Session& owner, uint64_t put_id);
  void DropLost(uint32_t index, const PutEnd::Item& item, uint64_t peer_id);

  bool IsReadable(const Object& object) const;
  uint32_t FindReadable(std::string_view key) const;
  LookupReply::Item Describe(uint32_t index, LookupReply& reply) const;
  uint64_t AddLease(SessionId session, std::vector<uint32_t> objects, double now_s);
  void EndLease(uint64_t lease);
  void Acquire(uint32_t index);
  void Unlease(uint32_t index);

  // Appends where its copies are; gives how many.
  uint32_t AppendPlacements(const Object& object, bool readable_only,
                            std::vector<NodeAddress>& nodes,
                            std::vector<Placement>& placements) const;
  std::vector<Copy> PlaceCopies(uint64_t bytes, uint32_t count);
  std::optional<Copy> PlaceCopy(uint64_t bytes, std::span<const Copy> taken);
  std::vector<uint32_t> Candidates(uint64_t bytes, std::span<const Copy> taken) const;
  std::optional<Copy> TryNodes(std::span<const uint32_t> nodes, uint64_t bytes);
  uint32_t OldestOn(std::span<const uint32_t> nodes) const;
  void Evict(uint32_t index);

  static uint64_t ExtentBytes(const Object& object);
  CopyList& ListOf(const Object& object, uint32_t node);
  void Link(uint32_t index);
  void Unlink(uint32_t index);
  void ReleaseCopy(uint32_t index, size_t at, const uint64_t* dirty_peer);
  void RemoveObject(uint32_t index);
  void FreeObject(uint32_t index);
  void FreeQuarantine(Node& node, uint64_t peer_id);
  void RememberFenced(uint64_t peer_id);

  uint32_t SlotOf(NodeId node) const;
  NodeReply Answer(const Node& node) const;
  void LoseNode(uint32_t slot);
  void LoseCopies(CopyList& list, uint32_t slot);
  void TickNodes(double now_s);
  Space SpaceOf(bool online_only) const;
  void CheckNode(uint32_t slot) const;
  void CheckList(const CopyList& list, uint32_t slot, bool evictable,
                 std::vector<Extent>& extents) const;

  MasterOptions options_;
  ObjectTable objects_;
  std::vector<Node> nodes_;
  std::unordered_map<NodeId, uint32_t> slot_of_node_;
  std::unordered_set<NodeId> lost_nodes_;
  std::unordered_map<SessionId, Session> sessions_;
  std::unordered_map<uint64_t, Lease> leases_;
  std::list<uint64_t> leases_by_end_;
  std::unordered_set<uint64_t> fenced_peers_;
  uint64_t last_generation_ = 0, last_lease_ = 0, last_touch_ = 0;
  uint64_t writing_ = 0;
  double last_s_ = -1, stalled_s_ = 0;
  Counters counters_;
};

}  // namespace mooncake::store
