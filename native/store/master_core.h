// MasterCore: who reads and who writes what is in the store. Pure: every event is a Step with the
// time, which answers with what to say; no I/O, clock, thread or randomness.
//
// Thread safety: none; one owner.
// Invariants (`Check`): those of Inventory; leases belong to sessions that are there, or are on
// their way to an end; each object that is being written is a put of one session; a key has one
// object.
//
// An extent that a writer has not confirmed to be done with is quarantined under the writer's peer
// id, until its node says that it has fenced that id, or is lost itself. Time alone frees nothing
// that can still be written. Time does end leases: readers verify what they read; but it ends no
// pin, whose objects stay until every node that has a part of them has fenced the reader.
//
// No step takes longer than about a millisecond at kMaxBatch keys: what does is cut into slices,
// which the shell runs while `has_background`.
#pragma once

#include <cstdint>
#include <deque>
#include <list>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "policy/admission.h"
#include "store/copy_jobs.h"
#include "store/copy_tasks.h"
#include "store/growing_table.h"
#include "store/inventory.h"
#include "store/master_options.h"
#include "store/messages.h"
#include "store/recent_ids.h"
#include "store/upkeep.h"

namespace mooncake::store {

class MasterCore {
 public:
  // When this long passes between two steps, it was the master that stood still: deadlines move.
  static constexpr double kStall_s = 0.5;

  // REQUIRES: Validate(options) is ok.
  explicit MasterCore(const MasterOptions& options);
  MasterCore(const MasterCore&) = delete;
  MasterCore& operator=(const MasterCore&) = delete;

  // kUnavailable when there are as many sessions as may be.
  Result<HelloReply> Step(const Hello& event, double now_s);
  HeartbeatReply Step(const Heartbeat& event, double now_s);
  void Goodbye(SessionId session, double now_s);

  PutStartReply Step(const PutStart& event, double now_s);
  PutEndReply Step(const PutEnd& event, double now_s);
  PutEndReply Step(const PutAbort& event, double now_s);

  LookupReply Step(const Lookup& event, double now_s);
  void Step(const Release& event, double now_s);
  std::vector<bool> Exists(std::span<const std::string_view> keys);
  uint64_t MatchPrefix(std::span<const std::string_view> keys);
  std::vector<bool> Remove(std::span<const std::string_view> keys);
  // A reader found bytes that do not match: the node's copy goes, or all when `node` is 0, unless
  // the object is another by now.
  void ReportCorrupt(std::string_view key, uint64_t generation, NodeId node);

  // One answer a key, those that are not there included. kInvalidArgument when all of it would not
  // fit a frame.
  Result<Objects> Step(const Describe& event);
  Objects Step(const List& event);
  std::vector<bool> Step(const SetPin& event, double now_s);

  TaskCreated Step(const TaskCreate& event, double now_s);
  // kInvalidArgument when the answer would not fit a frame. What was to be cancelled is, even so.
  Result<Tasks> Step(const TaskQuery& event, double now_s);

  NodeReply Step(const NodeRegister& event, double now_s);
  NodeReply Step(const NodeHeartbeat& event, double now_s);
  void NodeGoodbye(NodeId node);
  // Its connection broke. It is given client_ttl_s to come back; nobody is sent there meanwhile.
  void NodeDisconnected(NodeId node, double now_s);

  // Ends what is overdue. The shell calls it every 100 ms or so.
  void Tick(double now_s);
  // Something waits for RunSlice, which does about a millisecond of it.
  bool has_background() const;
  void RunSlice(double now_s);

  Stats Report() const;
  uint64_t epoch() const { return options_.epoch; }
  void Check() const;

 private:
  // Of background work, some 300 ns each: of a slice, and of a message, so that what is small is
  // done when it is answered.
  int slice_steps() const { return 1 + static_cast<int>(options_.step_evictions); }
  int settle_steps() const { return 1 + slice_steps() / 7; }
  static constexpr size_t kEarlyAborts = 2 * kMaxBatch;  // marks a session
  static constexpr size_t kRemembered = 1 << 16;         // peer ids, and nodes

  struct PutSlot {
    uint64_t put_id = 0;
    uint32_t hash = 0;
    uint32_t number = 0;  // of the object, + 1
    bool is_set() const { return number != 0; }
  };
  // Ids are the clients' own. The seed keeps them from choosing some that collide.
  struct Puts {
    uint64_t seed = 0;
    GrowingTable<PutSlot, 6> table{};

    uint32_t HashOf(uint64_t put_id) const {
      constexpr uint64_t kFirst = 0x9e3779b97f4a7c15, kSecond = 0xd1b54a32d192ed03;
      return static_cast<uint32_t>(MixWords(put_id ^ seed, MixWords(seed ^ kFirst, kSecond) | 1));
    }
    uint32_t Find(uint64_t put_id) const;
    void Insert(uint64_t put_id, uint32_t index) {
      table.Insert({put_id, HashOf(put_id), index + 1});
    }
    void Erase(uint64_t put_id) {
      table.Erase(HashOf(put_id), [put_id](const PutSlot& put) { return put.put_id == put_id; });
    }
  };
  struct Session {
    uint64_t peer_id = 0;
    std::string host_id;
    double seen_s = 0;
    bool has_pinned = false;
    Puts puts;
    std::unordered_set<uint64_t> leases;
    std::set<uint64_t> pins;               // of the leases
    RecentIds early_aborts{kEarlyAborts};  // ids whose abort overtook their start
  };
  // A session that is gone; its puts and leases follow.
  struct Ended {
    uint64_t peer_id = 0;
    Puts puts;
    uint64_t cursor = 0;  // of the puts
    std::unordered_set<uint64_t> leases;
  };
  struct Lease {
    SessionId session = 0;
    bool is_pin = false;
    double end_s = 0;
    std::vector<uint32_t> objects;
    std::list<uint64_t>::iterator by_end;  // not of a pin
    uint32_t fences = 0;                   // that a pin without a session waits for
  };
  // Room in the making, given back when its put does not ask for so long that it is forgotten.
  struct Making {
    Room room;
    double asked_s = 0;
    bool is_forgotten = false;
  };
  struct Asked {
    double at_s = 0;
    uint32_t index = 0;
    uint64_t generation = 0;
  };
  // An object's latest.
  struct SoftPin {
    double end_s = 0;
    uint64_t generation = 0;
    uint32_t hash = 0;
    uint32_t number = 0;  // of the object, + 1
    bool is_set() const { return number != 0; }
  };

  // master_core.cc: sessions, time and slices
  double Advance(double now_s);
  Session* Known(SessionId session, double now_s);
  void EndSession(SessionId session);
  void EndSome(Ended& ended, int& steps);
  void EndOverdue(int& steps);
  void Work(int steps);
  void GiveBackForgotten(int& steps);
  void PinFor(uint32_t index, double duration_s);
  uint64_t ForgetSoftPin(uint32_t index);

  // master_puts.cc
  void Near(std::span<const PutStart::Item> items);
  void Near(std::span<const PutEnd::Item> items, const Session& owner);
  PutStartReply::Item StartPut(const PutStart& event, const PutStart::Item& item, uint64_t hash,
                               Session& owner, PutStartReply& reply);
  PutOutcome Claim(const PutStart::Item& item, uint64_t hash, bool is_upsert, bool& takes_key);
  uint32_t AddPut(const PutStart& event, const PutStart::Item& item, uint16_t stripes, Room& room);
  PutStartReply::Item Continue(const PutStart& event, const PutStart::Item& item, uint32_t index,
                               Session& owner, PutStartReply& reply);
  Wanted WantedOf(const PutStart& event, const PutStart::Item& item, const Session& owner) const;
  PutStartReply::Item Grant(uint32_t index, PutStartReply& reply);
  EndOutcome EndPut(Session& owner, const PutEnd::Item& item, std::span<const uint32_t> checksums);
  EndOutcome Land(uint32_t index);
  EndOutcome AbortPut(Session& owner, const PutAbort::Item& item);
  void DropLost(uint32_t index, const PutEnd::Item& item, uint64_t peer_id);
  void Doubt(const Object& object, std::span<const NodeId> failed);
  bool IsOnOne(std::span<const CopyExtent> copy, const std::set<NodeId>& nodes) const;
  void EndWriting(uint32_t index);

  // master_lookups.cc
  void Near(std::span<const std::string_view> keys);
  uint32_t FindReadable(std::string_view key, uint64_t hash) const;
  LookupReply::Item Found(uint32_t index, LookupReply& reply);
  uint64_t AddLease(const Lookup& event, double now_s);
  void EndLeases(Session& session, std::span<const uint64_t> leases);
  void EndLostPins(Session& session, const Heartbeat& event);
  void EndLease(uint64_t lease);
  void Orphan(uint64_t lease, uint64_t peer_id);
  // Appends where an object's copies are; gives how many.
  uint32_t AppendPlacements(const Object& object, bool readable_only,
                            std::vector<NodeAddress>& nodes, std::vector<Placement>& placements);

  // master_listing.cc
  ObjectInfo InfoOf(uint32_t index, Objects& answer);
  uint32_t NameNode(uint32_t slot, Objects& answer);

  // master_copies.cc
  void WorkOnCopies(int& steps);
  void EndCopies();
  void Count(const CopyJobs::End& end);

  // master_nodes.cc
  NodeReply Answer(const NodeRecord& node);
  NodeReply Refuse(NodeRefusal refusal, std::string problem) const;
  void EndPins(NodeRecord::Quarantine& quarantine);
  void LoseNode(uint32_t slot);
  void TickNodes(double now_s);
  Space SpaceOf(bool open_only) const;

  const MasterOptions options_;
  Inventory inventory_;
  CopyJobs jobs_;
  CopyTasks tasks_;
  Upkeep upkeep_;
  std::unique_ptr<Admission> admission_;
  RecentIds lost_nodes_{kRemembered};
  std::unordered_map<SessionId, Session> sessions_;
  std::deque<Ended> ended_;
  std::unordered_map<uint32_t, Making> making_room_;  // by object
  std::deque<Asked> asked_;                           // for room; each once that is not forgotten
  std::unordered_map<uint64_t, Lease> leases_;
  std::list<uint64_t> leases_by_end_;
  std::deque<uint64_t> ended_leases_;
  // A client whose id is forgotten here still learns from the node that it was fenced.
  RecentIds fenced_peers_{kRemembered};
  GrowingTable<SoftPin, 6> soft_pin_of_;
  std::set<std::pair<double, uint32_t>> soft_pins_;  // by end; one an object
  uint64_t last_generation_ = 0, last_lease_ = 0, last_answer_ = 0;
  uint64_t writing_ = 0;
  double last_s_ = -1, stalled_s_ = 0, now_s_ = 0;

  // Of the step that goes on; kept for their memory.
  Room room_;
  std::vector<uint64_t> hashes_;
  std::vector<uint32_t> found_;
};

}  // namespace mooncake::store
