// NodeTable: the store nodes, with the space of each: what is granted, in which order it may be
// evicted, and what waits for a fence. It knows blocks, not objects.
//
// Thread safety: none; one owner.
// Invariants (`Check` of the owner): used = evictable + quarantined + what is held, reserved or
// being written; only committed objects' blocks are in a node's policy.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

#include "policy/eviction.h"
#include "store/allocator.h"
#include "store/messages.h"
#include "store/object_table.h"
#include "store/placement.h"

namespace mooncake::store {

// Space on a node that is no object's yet. It goes with its node.
struct Reserved {
  uint32_t slot = kNoIndex;
  NodeId node = 0;
  uint32_t block = kNoIndex;
};

struct NodeRecord {
  struct Quarantine {
    std::vector<uint32_t> blocks;
    std::vector<uint64_t> pins;  // leases without end that wait for this fence
  };

  NodeId id = 0;
  std::string endpoint, host_id, name, domain;
  NodeState state = NodeState::kOnline;
  bool is_lost = false;  // its copies are being dropped
  double seen_s = 0, lost_s = 0;
  std::optional<Allocator> allocator;                   // none: the slot is free
  std::unique_ptr<Eviction> policy;                     // over the blocks of committed objects
  std::unordered_map<uint64_t, Quarantine> quarantine;  // by the writer's peer id
  std::vector<uint32_t> fenced;                         // blocks of it that may be freed
  std::unordered_set<uint32_t> reserved;
  uint64_t quarantined_bytes = 0;
  uint32_t last_freed = kNoIndex;  // the free block that holds what was freed last
  uint64_t answer = 0;             // the last that named it,
  uint32_t answer_index = 0;       // and as which of its nodes
  double doubted_until_s = 0;

  bool is_there() const { return allocator.has_value() && !is_lost; }
  bool is_readable() const { return state != NodeState::kSuspected && !is_lost; }
};

class NodeTable {
 public:
  explicit NodeTable(std::string eviction) : eviction_(std::move(eviction)) {}

  uint32_t size() const { return static_cast<uint32_t>(nodes_.size()); }
  NodeRecord& operator[](uint32_t slot) { return nodes_[slot]; }
  const NodeRecord& operator[](uint32_t slot) const { return nodes_[slot]; }
  // What placement may know of them, by slot.
  std::span<const NodeView> views() const { return views_; }

  uint32_t Find(NodeId node) const;
  // kNoIndex: none of that name.
  uint32_t FindNamed(std::string_view name) const;
  // As Wish::host; kNoHost: no node is there.
  uint32_t HostOf(const std::string& host_id) const;

  uint32_t Add(const NodeRegister& event, double now_s);
  void SetState(uint32_t slot, NodeState state);
  // Placement takes it last, until then. REQUIRES: no earlier than in the call before.
  void Doubt(uint32_t slot, double until_s);
  void EndDoubts(double now_s);
  bool has_doubts() const { return !doubted_.empty(); }
  // How many copies of an object could be made were there room: distinct domains of open nodes.
  uint32_t domain_count() const { return domain_count_; }
  // Some node takes objects that did not when this was asked last.
  bool TakeOpened() { return std::exchange(has_opened_, false); }
  bool has_opened() const { return has_opened_; }
  // It is found and used no more; its blocks are to be freed one by one.
  void Lose(uint32_t slot);
  // REQUIRES: it was lost, and all of its blocks are free.
  void Drop(uint32_t slot);

  std::optional<uint32_t> Allocate(uint32_t slot, uint64_t bytes, uint32_t index);
  uint32_t AllocateFrom(uint32_t slot, uint32_t free_block, uint64_t bytes, uint32_t index);
  void Free(uint32_t slot, uint32_t block);
  void Quarantine(uint32_t slot, uint32_t block, uint64_t peer_id);

  // Blocks in the policy, and out of it.
  void Enter(uint32_t slot, uint32_t block, EvictionClass in, uint32_t depth);
  void Classify(uint32_t slot, uint32_t block, EvictionClass to, bool goes_next);
  void Leave(uint32_t slot, uint32_t block);

  // True while the node is the one that it was reserved on.
  bool IsThere(const Reserved& reserved) const {
    return nodes_[reserved.slot].is_there() && nodes_[reserved.slot].id == reserved.node;
  }
  void FreeReserved(const Reserved& reserved);

  // Those that were lost and still have blocks.
  std::deque<uint32_t>& lost() { return lost_; }
  const std::deque<uint32_t>& lost() const { return lost_; }

 private:
  struct Doubted {
    uint32_t slot = 0;
    NodeId node = 0;
    double end_s = 0;
  };

  void Renumber();

  const std::string eviction_;
  std::deque<NodeRecord> nodes_;
  std::vector<NodeView> views_;
  std::unordered_map<NodeId, uint32_t> slot_of_;
  std::unordered_map<std::string, uint32_t> hosts_;
  bool has_opened_ = false;
  uint32_t domain_count_ = 0;
  std::deque<uint32_t> lost_;
  std::deque<Doubted> doubted_;  // each node once, in the order of their ends
};

}  // namespace mooncake::store
