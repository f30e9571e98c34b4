// Room for objects: what is free, then what may be evicted, and only if that will do.
//
// Space for an extent is a window of neighbouring blocks, each free or evictable, around a victim
// of the node's policy. It is looked for before the first eviction, and exactly it is evicted. A
// step evicts so much; what it then has freed of the window is reserved until the next one.
#include <algorithm>

#include "base/check.h"
#include "store/inventory.h"

namespace mooncake::store {
namespace {

// Of a step. Evicting takes some 300 ns, looking at a block some 10.
constexpr int kEvictions = 2000;
constexpr int kLooks = 20'000;
constexpr size_t kTrusted = 8192;  // a window with so many objects is taken to be long enough
constexpr uint32_t kMaxAsks = 1000;
constexpr int kBlocked = 100;  // rank of a block that cannot be part of a window

}  // namespace

uint64_t Wanted::ExtentBytes(size_t stripe) const {
  if (stripes == 1) return kHeaderBytes + size_bytes;
  return kHeaderBytes + std::min(stripe_bytes, size_bytes - stripe_bytes * stripe);
}

void Inventory::BeginStep() {
  ++now_used_;
  work_ = kEvictions;
  looks_ = kLooks;
}

// A batch waits for its cache misses together: for records, then for what varies, then for slots.
void Inventory::NearVictims(size_t count, uint64_t bytes) {
  for (uint32_t slot = 0; slot < nodes_.size(); ++slot) {
    const NodeRecord& node = nodes_[slot];
    if (!nodes_.views()[slot].is_open || nodes_.views()[slot].free_bytes >= bytes) continue;
    near_.clear();
    uint32_t block = node.policy->Victim();
    for (; block != Eviction::kNone && near_.size() < count; block = node.policy->Next(block)) {
      near_.push_back(static_cast<uint32_t>(node.allocator->TagOf(block)));
      __builtin_prefetch(&objects_[near_.back()]);
    }
    for (const uint32_t index : near_) __builtin_prefetch(objects_[index].data);
    for (const uint32_t index : near_) {
      objects_.PrefetchSlot(objects_.HashOf(objects_[index].key()));
    }
    if (nodes_.size() > 1) count = count / 2 + 1;
  }
}

RoomOutcome Inventory::Place(const Wanted& wanted, Room& room) {
  const bool is_whole = std::ranges::all_of(
      room.extents, [this](const Reserved& each) { return nodes_.IsThere(each); });
  if (!is_whole) GiveBack(room);
  if (++room.asks > kMaxAsks) {
    GiveBack(room);
    return RoomOutcome::kFull;
  }
  RecallDomains(wanted, room);
  const size_t whole = size_t{wanted.copies} * wanted.stripes;
  while (room.extents.size() < whole) {
    const RoomOutcome outcome = PlaceExtent(wanted, room);
    if (outcome == RoomOutcome::kDone) continue;
    if (outcome == RoomOutcome::kMaking) {
      for (const Reserved& extent : room.extents) Keep(extent);
      return outcome;
    }
    const size_t kept = wanted.is_strict ? 0 : room.extents.size() / wanted.stripes;
    if (kept == 0) {
      GiveBack(room);
      return RoomOutcome::kFull;
    }
    for (; room.extents.size() > kept * wanted.stripes; room.extents.pop_back()) {
      nodes_.FreeReserved(room.extents.back());
    }
    break;
  }
  return RoomOutcome::kDone;
}

void Inventory::GiveBack(Room& room) {
  for (const Reserved& extent : room.extents) nodes_.FreeReserved(extent);
  if (room.grown.slot != kNoIndex) nodes_.FreeReserved(room.grown);
  room.extents.clear();
  room.grown = {};
}

// The domains of the copies before, and those of the copy that is being placed.
void Inventory::RecallDomains(const Wanted& wanted, const Room& room) {
  taken_domains_.clear();
  own_domains_.clear();
  if (wanted.copies == 1) return;
  domain_count_ = wanted.stripes > 1 ? CountDomains() : 0;
  copies_left_ = wanted.copies - room.extents.size() / wanted.stripes;
  for (size_t at = 0; at < room.extents.size(); ++at) {
    const uint32_t domain = nodes_.views()[room.extents[at].slot].domain;
    auto& domains =
        at / wanted.stripes == room.extents.size() / wanted.stripes ? own_domains_ : taken_domains_;
    if (std::ranges::find(domains, domain) == domains.end()) domains.push_back(domain);
  }
}

void Inventory::TakeDomain(const Wanted& wanted, const Room& room, uint32_t slot) {
  if (wanted.copies == 1) return;
  const uint32_t domain = nodes_.views()[slot].domain;
  if (std::ranges::find(own_domains_, domain) == own_domains_.end()) {
    own_domains_.push_back(domain);
  }
  if (room.extents.size() % wanted.stripes != 0) return;
  taken_domains_.insert(taken_domains_.end(), own_domains_.begin(), own_domains_.end());
  own_domains_.clear();
  --copies_left_;
}

// The stripes of a copy lie in so many domains that each copy to come still has its share.
bool Inventory::IsAllowed(const Wanted& wanted, uint32_t slot) const {
  if (wanted.copies == 1 || wanted.stripes == 1 || own_domains_.empty()) return true;
  const uint32_t domain = nodes_.views()[slot].domain;
  if (std::ranges::find(own_domains_, domain) != own_domains_.end()) return true;
  const size_t left = domain_count_ - std::min<size_t>(domain_count_, taken_domains_.size());
  return own_domains_.size() < left / copies_left_;
}

// What was reserved of a window is free again while it is gone on with, so that it counts.
RoomOutcome Inventory::PlaceExtent(const Wanted& wanted, Room& room) {
  const uint64_t bytes = wanted.ExtentBytes(room.extents.size() % wanted.stripes);
  const Reserved grown = std::exchange(room.grown, {});
  uint32_t centre = kNoIndex;
  if (grown.slot != kNoIndex && nodes_.IsThere(grown)) {
    nodes_.FreeReserved(grown);
    centre = nodes_[grown.slot].last_freed;
  }
  auto found = PlaceFree(wanted, bytes);
  if (!found) {
    if (evicts_oldest_ && wanted.preferred.empty() && order_.size() > 1) RankVictims();
    const auto first = std::ranges::find(order_, grown.slot);
    if (first != order_.end()) std::rotate(order_.begin(), first, first + 1);
  }
  for (size_t at = 0; !found && at < order_.size(); ++at) {
    Reserved reserved;
    const uint32_t start = order_[at] == grown.slot ? centre : kNoIndex;
    const RoomOutcome outcome = MakeRoom(order_[at], bytes, start, room, reserved);
    if (outcome == RoomOutcome::kMaking) return outcome;
    if (outcome == RoomOutcome::kDone) found = reserved;
  }
  if (!found) return RoomOutcome::kFull;
  placement_->Take(found->slot);
  room.extents.push_back(*found);
  TakeDomain(wanted, room, found->slot);
  return RoomOutcome::kDone;
}

// On the best node that has it free; nodes where it would have to be made are left in `order_`.
std::optional<Reserved> Inventory::PlaceFree(const Wanted& wanted, uint64_t bytes) {
  placement_->Begin(nodes_.views(), {bytes, wanted.host, wanted.preferred});
  for (const uint32_t domain : taken_domains_) placement_->Exclude(domain);
  order_.clear();
  for (uint32_t slot = placement_->Next(); slot != Placer::kNone; slot = placement_->Next()) {
    if (!IsAllowed(wanted, slot)) continue;
    if (const auto found = Reserve(slot, bytes)) return found;
    order_.push_back(slot);
  }
  return std::nullopt;
}

// Nodes whose next victim is of a lower class come first, then those where it was used before.
void Inventory::RankVictims() {
  const auto rank = [this](uint32_t slot) {
    Eviction& policy = *nodes_[slot].policy;
    const uint32_t block = policy.Victim();
    if (block == Eviction::kNone) return std::pair(kBlocked, int32_t{0});
    const uint32_t index = static_cast<uint32_t>(nodes_[slot].allocator->TagOf(block));
    const uint32_t age = now_used_ - objects_[index].touched;
    return std::pair(static_cast<int>(policy.ClassOf(block)), -static_cast<int32_t>(age));
  };
  std::ranges::stable_sort(order_, {}, rank);
}

std::optional<Reserved> Inventory::Reserve(uint32_t slot, uint64_t bytes) {
  const auto block = nodes_.Allocate(slot, bytes, kNoIndex);
  if (!block) return std::nullopt;
  return Reserved{slot, nodes_[slot].id, *block};
}

RoomOutcome Inventory::MakeRoomOn(uint32_t slot, uint64_t bytes, Room& room, Reserved& reserved) {
  const Reserved grown = std::exchange(room.grown, {});
  uint32_t centre = kNoIndex;
  if (grown.slot == slot && nodes_.IsThere(grown)) {
    nodes_.FreeReserved(grown);
    centre = nodes_[slot].last_freed;
  }
  return MakeRoom(slot, bytes, centre, room, reserved);
}

// `centre` is a free block to begin with, or kNoIndex.
RoomOutcome Inventory::MakeRoom(uint32_t slot, uint64_t bytes, uint32_t centre, Room& room,
                                Reserved& reserved) {
  NodeRecord& node = nodes_[slot];
  if (work_ <= 0) {
    if (centre != kNoIndex) ReserveRun(slot, centre, bytes, room);
    return RoomOutcome::kMaking;
  }
  if (centre == kNoIndex || !Widen(slot, centre, bytes)) {
    const RoomOutcome outcome = FindWindow(slot, bytes, room.cursor);
    if (outcome != RoomOutcome::kDone) return outcome;
  }
  bool is_whole = window_.size() < kTrusted;
  size_t evicted = 0;
  for (; evicted < window_.size(); ++evicted) {
    if (!EvictVictim(slot, window_[evicted])) break;
  }
  is_whole = is_whole && evicted == window_.size();
  const auto found = is_whole ? Reserve(slot, bytes) : std::nullopt;
  if (found) {
    reserved = *found;
    return RoomOutcome::kDone;
  }
  if (evicted > 0) {
    ReserveRun(slot, node.last_freed, bytes, room);
    room.asks = 0;
  }
  return RoomOutcome::kMaking;
}

// Keeps what is free of a window for its put, until the next step goes on with it.
void Inventory::ReserveRun(uint32_t slot, uint32_t free_block, uint64_t bytes, Room& room) {
  const NodeRecord& node = nodes_[slot];
  const uint64_t run = std::min(node.allocator->BytesOf(free_block), bytes);
  room.grown = {slot, node.id, nodes_.AllocateFrom(slot, free_block, run, kNoIndex)};
  Keep(room.grown);
}

// Tries victims in the order of the policy; a window is left in `window_`.
RoomOutcome Inventory::FindWindow(uint32_t slot, uint64_t bytes, uint32_t& cursor) {
  Eviction& policy = *nodes_[slot].policy;
  const bool goes_on = cursor != kNoIndex && policy.Contains(cursor) &&
                       policy.ClassOf(cursor) != EvictionClass::kHeld;
  uint32_t block = goes_on ? policy.Next(cursor) : policy.Victim();
  for (cursor = kNoIndex; block != Eviction::kNone; block = policy.Next(block)) {
    if (Widen(slot, block, bytes)) return RoomOutcome::kDone;
    if (looks_ > 0) continue;
    cursor = block;
    return RoomOutcome::kMaking;
  }
  return RoomOutcome::kFull;
}

// Where a block stands among those that could be part of a window: what is free first.
int Inventory::RankOf(const NodeRecord& node, uint32_t block) const {
  if (block == Allocator::kNone) return kBlocked;
  if (node.allocator->IsFree(block)) return -1;
  if (!node.policy->Contains(block)) return kBlocked;
  const EvictionClass in = node.policy->ClassOf(block);
  return in == EvictionClass::kHeld ? kBlocked : static_cast<int>(in);
}

// Takes neighbours of `block` until they are long enough; false when they cannot be. Of two that
// are as good, the one after it, which was often put next; of a chain the one before it, for a
// chain goes from its end.
bool Inventory::Widen(uint32_t slot, uint32_t block, uint64_t bytes) {
  const NodeRecord& node = nodes_[slot];
  const Allocator& allocator = *node.allocator;
  window_.clear();
  const auto take = [&](uint32_t taken) {
    if (allocator.IsFree(taken)) return;
    window_.push_back({static_cast<uint32_t>(allocator.TagOf(taken)), taken});
  };
  take(block);
  uint64_t total = allocator.BytesOf(block);
  uint32_t left = allocator.Before(block), right = allocator.After(block);
  for (--looks_; total < bytes; --looks_) {
    if (window_.size() >= kTrusted) return true;
    const int before = RankOf(node, left), after = RankOf(node, right);
    if (std::min(before, after) == kBlocked) return false;
    const bool is_chain = after == static_cast<int>(EvictionClass::kInterior);
    const bool goes_left = before < after || (before == after && is_chain);
    const uint32_t next = goes_left ? left : right;
    take(next);
    total += allocator.BytesOf(next);
    (goes_left ? left : right) = goes_left ? allocator.Before(next) : allocator.After(next);
  }
  return true;
}

// False: the step's work is used up, and the block is still there.
bool Inventory::EvictVictim(uint32_t slot, const Victim& victim) {
  const Object& object = objects_[victim.index];
  const NodeRecord& node = nodes_[slot];
  // It may be gone with another of the window.
  if (!node.policy->Contains(victim.block)) return true;
  if (node.policy->ClassOf(victim.block) != EvictionClass::kExtra) return EvictTree(victim.index);
  if (work_-- <= 0) return false;
  counters_.evicted_bytes += node.allocator->BytesOf(victim.block);
  DropCopy(victim.index, CopyAt(object, slot, victim.block), nullptr);
  return true;
}

}  // namespace mooncake::store
