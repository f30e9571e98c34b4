// Inventory: which objects there are, of which copies, on which nodes, and which of them go when
// room is needed. It knows nothing of sessions, messages and time.
//
// Thread safety: none; one owner.
// Invariants (`Check`): extents never overlap, and a node's used bytes are the sum of them, of what
// is quarantined and of what is reserved; every block of a committed object is in the class of its
// node's policy that ClassOf says; chains and groups name each other.
//
// Chains: an object stays while others have it as their parent, unless nothing else is left to be
// evicted; then its descendants go first, the last of the chain before all. One that is removed
// while it has children leaves an empty record until they are gone.
//
// For background copies (placement is decided by the caller):
//   Reserve / MakeRoomOn   take space on a node, without and with evicting
//   Keep, FreeReserved     keep it over the end of a step, give it back
//   AddCopy                what was reserved becomes a copy of an object
//   DropCopy, RetireCopy   a copy goes, at once or when nobody holds the object
//   Hold, Unhold           the object and its extents stay where they are meanwhile
//   NextObjectOn           walks the objects of a node, a few at a time
//   TakeShort              objects that have lost a copy
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "store/group_table.h"
#include "store/master_options.h"
#include "store/node_table.h"
#include "store/object_table.h"
#include "store/placement.h"

namespace mooncake::store {

// How far the victims of a node have been looked at, for some number of bytes.
struct Search {
  EvictionClass limit = EvictionClass::kInterior;  // of what may go; kHeld: all was in vain
  uint32_t cursor = kNoIndex;                      // within it, up to and with this one
  uint32_t last = kNoIndex;                        // block of the window that was planned last
};
// What placing an object has come to so far.
struct Room {
  std::vector<Reserved> extents;  // copy by copy, stripe by stripe
  Reserved grown;                 // a run of space that is still too short,
  EvictionClass grown_limit{};    // and of what it may go on
  uint64_t searched_bytes = 0;
  std::vector<Search> searches;  // by node
  uint32_t asks = 0;
  uint8_t fewer_copies = 0;  // than are wanted, since all would not fit

  void Restart() { asks = 0, searched_bytes = 0, fewer_copies = 0; }
};
enum class RoomOutcome {
  kDone,
  kMaking,  // its share of work is used up: go on with the same Room
  kFull,    // no eviction would help
};
struct Wanted {
  uint64_t size_bytes = 0;
  uint64_t stripe_bytes = 0;  // 0: one stripe
  uint16_t stripes = 1;
  uint8_t copies = 1;
  bool is_strict = false;
  uint32_t host = Wish::kNoHost;  // the writer's
  std::span<const std::string> preferred{};

  uint64_t ExtentBytes(size_t stripe) const;
};

enum class Cause { kGone, kEvicted, kReplaced };

class Inventory {
 public:
  explicit Inventory(const MasterOptions& options);

  ObjectTable& objects() { return objects_; }
  const ObjectTable& objects() const { return objects_; }
  NodeTable& nodes() { return nodes_; }
  const NodeTable& nodes() const { return nodes_; }
  const GroupTable& groups() const { return groups_; }
  Counters& counters() { return counters_; }
  const Counters& counters() const { return counters_; }
  uint64_t committed() const { return committed_; }  // objects
  uint64_t pinned_bytes(Pin pin) const { return pinned_bytes_[static_cast<int>(pin)]; }

  // Brings near what evicting the next objects for so many extents of `bytes` in all will look at.
  void NearVictims(size_t count, uint64_t bytes);

  // Begins a message: it may do so much work on room, and what it uses was used now.
  void BeginStep();
  // False: it has looked at as many nodes as may be. What is still to be placed waits.
  bool may_place() const { return visits_ > 0; }

  // --- objects
  // The one that has the key and is not dying with its group.
  uint32_t Find(std::string_view key, uint32_t hash) const;
  uint32_t Find(std::string_view key) const { return Find(key, objects_.HashOf(key)); }
  bool IsReadable(const Object& object) const;
  bool IsReadable(const Object& object, size_t copy) const;
  bool IsDying(const Object& object) const {
    return object.group != kNoIndex && groups_[object.group].is_dead;
  }
  uint64_t TotalBytes(const Object& object) const;

  // Makes an object that is being written, of the copies that the room holds, which it takes over.
  uint32_t Create(const ObjectShape& shape, Room& room);
  // Puts an object that is being written behind its parent, and into its group.
  void LinkToParent(uint32_t index, uint32_t parent);
  void JoinGroup(uint32_t index, std::string_view name, uint32_t size);
  void TakeOver(uint32_t index, Room& room);
  void Commit(uint32_t index);
  // Gives the key to `index`; whoever has it is replaced, or superseded if it is being written.
  void Replace(uint32_t index);
  // Takes the key away at once; space follows when nobody holds the object.
  void Remove(uint32_t index, Cause cause, uint32_t heir = kNoIndex);
  void SetPin(uint32_t index, Pin pin);
  // It was looked up.
  void Use(uint32_t index);
  void Hold(uint32_t index);
  void Unhold(uint32_t index);

  // --- copies
  // REQUIRES: as many as the object has stripes, all of them there.
  void AddCopy(uint32_t index, std::span<const Reserved> extents);
  // `dirty_peer` may still write it: its space is quarantined. REQUIRES: nobody reads it.
  void DropCopy(uint32_t index, size_t at, const uint64_t* dirty_peer);
  // Gone for new readers. An object without any other copy goes too.
  // REQUIRES: it is committed.
  void RetireCopy(uint32_t index, size_t at);
  uint32_t NextObjectOn(uint32_t slot, uint32_t& cursor, int looks) const;
  // Committed, with a copy less than it had, if it is still there; kNoIndex: no more.
  uint32_t TakeShort();
  bool has_short() const { return !short_.empty(); }
  void ForgetShort() { short_.clear(); }

  // --- room
  // What is reserved in a step is to be used, given back or kept before its end.
  void Keep(const Reserved& reserved) { nodes_[reserved.slot].reserved.insert(reserved.block); }
  std::optional<Reserved> Reserve(uint32_t slot, uint64_t bytes);
  // REQUIRES: a Room is of one node.
  RoomOutcome MakeRoomOn(uint32_t slot, uint64_t bytes, Room& room, Reserved& reserved);
  void FreeReserved(const Reserved& reserved) { nodes_.FreeReserved(reserved); }
  // Adds extents to the room until it has all, or (unless it is strict) as many whole copies as can
  // be. kFull leaves it empty. Nothing is evicted before all that is wanted was found, as far as a
  // step's work reaches; what is beyond is judged by the sum of what could be evicted. What is
  // pinned softly stays where anything else will do.
  RoomOutcome Place(const Wanted& wanted, Room& room);
  void GiveBack(Room& room);
  uint32_t CountDomains() const { return nodes_.domain_count(); }

  // --- nodes
  // Its copies and its quarantine go with its memory, bit by bit.
  void LoseNode(uint32_t slot) { nodes_.Lose(slot); }
  void FreeFenced(uint32_t slot, uint64_t peer_id);

  // Goes on with what takes longer than a step, about `steps` steps of it; false: nothing is left.
  bool Work(int& steps);
  bool has_work() const;

  void Check() const;

 private:
  struct Victim {
    uint32_t index, block;
  };
  // What is to become an extent: it is reserved, or objects are to go first.
  struct Planned {
    Reserved extent{};  // without a block: not yet
    uint64_t bytes = 0;
    EvictionClass limit{};
    size_t first_victim = 0, victims_end = 0;
  };

  // inventory.cc
  EvictionClass ClassOf(const Object& object, size_t copy) const;
  void Reclassify(uint32_t index, bool goes_next = false);
  void EnterCopy(uint32_t index, size_t at);
  void Sweep(uint32_t index);
  void DropRetired(uint32_t index);
  void LeaveGroup(uint32_t index, Cause cause, uint32_t heir);
  Pin PinOf(const Object& object) const;
  void CountPin(uint32_t group, Pin pin, int change);
  void Settle(uint32_t group);
  size_t ExtentAt(const Object& object, uint32_t slot, uint32_t block) const;
  size_t CopyAt(const Object& object, uint32_t slot, uint32_t block) const {
    return ExtentAt(object, slot, block) / object.head().stripes;
  }
  void SweepLost(uint32_t slot);
  void SweepDead(uint32_t group);

  // chains.cc
  void UnlinkFromParent(uint32_t index, bool evicted);
  void Adopt(uint32_t old, uint32_t fresh);
  bool EvictTree(uint32_t root);
  bool CanGo(const Object& object) const;
  void EvictOne(uint32_t index);

  // room.cc
  RoomOutcome Plan(const Wanted& wanted, Room& room, const Reserved& centre);
  RoomOutcome PlanExtent(const Wanted& wanted, Room& room, const Reserved& centre);
  bool CarryOut(Room& room);
  bool KeepWholeCopies(const Wanted& wanted, Room& room);
  void DropPlan(size_t from);
  bool CouldHold(const Wanted& wanted, const Room& room) const;
  RoomOutcome PlanOn(bool is_doubted, const Wanted& wanted, Room& room, const Reserved& centre,
                     Planned& planned);
  std::optional<Reserved> PlaceFree(bool is_doubted, const Wanted& wanted, uint64_t bytes);
  bool IsAllowed(const Wanted& wanted, uint32_t slot) const;
  void TakeDomain(const Wanted& wanted, size_t placed, uint32_t slot);
  void RecallDomains(const Wanted& wanted, const Room& room);
  void SurveyDomains();
  RoomOutcome PlanCopies(Wanted wanted, Room& room);
  Reserved FreeGrown(Room& room);
  void ReserveRun(uint32_t slot, uint32_t free_block, uint64_t bytes, Room& room);
  bool Evict(Planned& planned, Room& room);

  // windows.cc
  RoomOutcome FindRoom(Planned& planned, Room& room, const Reserved& centre);
  RoomOutcome FindWindow(uint32_t slot, uint64_t bytes, Search& search);
  uint32_t NextVictim(uint32_t slot, const Search& search) const;
  void RankVictims(const Room& room);
  int RankOf(uint32_t slot, uint32_t block, EvictionClass limit, bool is_left) const;
  bool Widen(uint32_t slot, uint32_t block, uint64_t bytes, EvictionClass limit, uint32_t& last);
  bool TakeRest(uint32_t slot, uint64_t bytes, const Search& search);
  void MarkWindow(uint32_t slot, uint32_t first, uint32_t last, uint64_t rest_bytes);
  bool IsPlanned(uint32_t slot, uint32_t block) const;
  bool EvictVictim(uint32_t slot, const Victim& victim);
  void CheckNode(uint32_t slot) const;
  void CheckObject(uint32_t index) const;
  void CheckGroups() const;

  static constexpr int kMaxAdopted = 1024;  // children, in a step

  const uint64_t stripe_bytes_;
  const int step_evictions_;
  const bool evicts_oldest_;  // of all nodes', where placement has no wish of its own
  ObjectTable objects_;
  NodeTable nodes_;
  GroupTable groups_;
  std::unique_ptr<Placer> placement_;
  Counters counters_;
  uint64_t committed_ = 0;
  std::array<uint64_t, 3> pinned_bytes_{};
  uint32_t now_used_ = 0;                                  // the count of uses
  int work_ = 0, looks_ = 0, visits_ = 0, adoptable_ = 0;  // left to this step
  std::deque<uint32_t> fenced_;                            // nodes with blocks that may be freed
  std::deque<uint32_t> unsettled_;                         // groups, some twice, or settled by now
  std::deque<std::pair<uint32_t, uint64_t>> short_;        // object and generation

  // Of the step that goes on; kept for their memory.
  std::vector<Planned> plan_;
  std::vector<Victim> victims_;  // of the plan's windows
  bool has_many_ = false;        // extents to place: windows must not overlap
  bool ranks_victims_ = false;   // the oldest go first, wherever they are
  // By node and block: those of windows, and how many bytes of a window are left at its last.
  std::unordered_map<uint64_t, uint64_t> windows_;
  std::vector<uint32_t> near_;
  std::vector<uint32_t> order_;
  struct RankedNode {
    int in;       // class of its next victim
    int32_t age;  // of that, negative
    uint32_t at, slot;
    auto operator<=>(const RankedNode&) const = default;
  };
  std::vector<RankedNode> ranked_;
  std::vector<uint32_t> taken_domains_, own_domains_;  // of the copies before, of this one
  std::vector<uint64_t> domain_bytes_;
  uint32_t domain_count_ = 0;
  size_t copies_left_ = 0;  // this one included
  std::vector<CopyExtent> copy_;
};

}  // namespace mooncake::store
