// Windows: neighbouring blocks of a node, each free or evictable, which together are long enough
// for an extent. They are looked for around the victims of the node's policy.
//
// Windows of one plan do not overlap. The extent lies at a window's begin; what is left at its end
// may hold the next extent, or begin the next window.
#include <algorithm>

#include "store/inventory.h"

namespace mooncake::store {
namespace {

constexpr size_t kTrusted = 8192;  // a window with so many objects is taken to be long enough
constexpr int kBlocked = 100;      // rank of a block that cannot be part of a window

uint64_t KeyOf(uint32_t slot, uint32_t block) { return uint64_t{slot} << 32 | block; }

uint64_t UnitsBelow(uint64_t bytes) {
  return bytes / Allocator::kGranularity * Allocator::kGranularity;
}

}  // namespace

// On a node of `order_`. What is pinned softly counts only when there is room on none of them
// without it.
RoomOutcome Inventory::FindRoom(Planned& planned, Room& room, const Reserved& centre) {
  const uint64_t bytes = planned.bytes;
  if (room.searched_bytes != bytes) {
    for (Search& search : room.searches) search = {.last = search.last};
    room.searched_bytes = bytes;
  }
  room.searches.resize(nodes_.size());
  const auto take = [&](uint32_t slot, EvictionClass limit) {
    planned.extent = {slot, nodes_[slot].id};
    planned.limit = limit;
    planned.victims_end = victims_.size();
    return RoomOutcome::kDone;
  };
  if (std::ranges::find(order_, centre.slot) != order_.end()) {
    Search& search = room.searches[centre.slot];
    const EvictionClass limit = std::max(room.grown_limit, EvictionClass::kInterior);
    if (Widen(centre.slot, centre.block, bytes, limit, search.last))
      return take(centre.slot, limit);
  }
  for (const uint32_t slot : order_) {
    if (windows_.empty()) break;
    if (TakeRest(slot, bytes, room.searches[slot])) return take(slot, EvictionClass::kInterior);
  }
  if (ranks_victims_ && order_.size() > 1) RankVictims(room);
  for (const EvictionClass limit : {EvictionClass::kInterior, EvictionClass::kSoftPinned}) {
    for (const uint32_t slot : order_) {
      if (room.searches[slot].limit != limit) continue;
      const RoomOutcome outcome = FindWindow(slot, bytes, room.searches[slot]);
      if (outcome == RoomOutcome::kDone) return take(slot, limit);
      if (outcome == RoomOutcome::kMaking) return outcome;
    }
  }
  return RoomOutcome::kFull;
}

// Tries victims in the order of the policy, up to the search's limit, which is raised in the end.
RoomOutcome Inventory::FindWindow(uint32_t slot, uint64_t bytes, Search& search) {
  Eviction& policy = *nodes_[slot].policy;
  uint32_t block = NextVictim(slot, search);
  for (; block != Eviction::kNone; block = policy.Next(block, search.limit)) {
    search.cursor = block;
    if (Widen(slot, block, bytes, search.limit, search.last)) return RoomOutcome::kDone;
    if (looks_ <= 0) return RoomOutcome::kMaking;
  }
  const bool has_soft =
      search.limit < EvictionClass::kSoftPinned && policy.CountOf(EvictionClass::kSoftPinned) > 0;
  search.limit = has_soft ? EvictionClass::kSoftPinned : EvictionClass::kHeld;
  search.cursor = kNoIndex;
  return RoomOutcome::kFull;
}

uint32_t Inventory::NextVictim(uint32_t slot, const Search& search) const {
  if (search.limit == EvictionClass::kHeld) return Eviction::kNone;
  Eviction& policy = *nodes_[slot].policy;
  const bool goes_on = search.cursor != kNoIndex && policy.Contains(search.cursor) &&
                       policy.ClassOf(search.cursor) <= search.limit;
  return goes_on ? policy.Next(search.cursor, search.limit) : policy.Victim(search.limit);
}

// Nodes whose next victim is of a lower class come first, then those where it was used before.
void Inventory::RankVictims(const Room& room) {
  ranked_.clear();
  for (const uint32_t slot : order_) {
    RankedNode node{kBlocked, 0, static_cast<uint32_t>(ranked_.size()), slot};
    if (const uint32_t block = NextVictim(slot, room.searches[slot]); block != Eviction::kNone) {
      const uint32_t index = static_cast<uint32_t>(nodes_[slot].allocator->TagOf(block));
      node.in = static_cast<int>(nodes_[slot].policy->ClassOf(block));
      node.age = -static_cast<int32_t>(now_used_ - objects_[index].touched);
    }
    ranked_.push_back(node);
  }
  std::ranges::sort(ranked_);
  std::ranges::transform(ranked_, order_.begin(), &RankedNode::slot);
}

// Where a block stands among those that could be part of a window: what is free first.
int Inventory::RankOf(uint32_t slot, uint32_t block, EvictionClass limit, bool is_left) const {
  if (block == Allocator::kNone) return kBlocked;
  if (!windows_.empty()) {
    const auto planned = windows_.find(KeyOf(slot, block));
    if (planned != windows_.end()) return is_left && planned->second > 0 ? -1 : kBlocked;
  }
  const NodeRecord& node = nodes_[slot];
  if (node.allocator->IsFree(block)) return -1;
  if (!node.policy->Contains(block)) return kBlocked;
  const EvictionClass in = node.policy->ClassOf(block);
  return in > limit ? kBlocked : static_cast<int>(in);
}

// Takes neighbours of `block` until they are long enough; false when they cannot be. Of two that
// are as good, the one after it, which was often put next; of a chain the one before it, for a
// chain goes from its end.
bool Inventory::Widen(uint32_t slot, uint32_t block, uint64_t bytes, EvictionClass limit,
                      uint32_t& last) {
  --looks_;
  if (!windows_.empty() && IsPlanned(slot, block)) return false;
  const Allocator& allocator = *nodes_[slot].allocator;
  const size_t kept = victims_.size();
  const auto take = [&](uint32_t taken) {
    if (allocator.IsFree(taken)) return;
    victims_.push_back({static_cast<uint32_t>(allocator.TagOf(taken)), taken});
  };
  take(block);
  uint64_t total = allocator.BytesOf(block);
  uint32_t first = block, end = block;
  uint64_t* rest = nullptr;  // of another window, which this one begins with
  for (; total < bytes && victims_.size() - kept < kTrusted; --looks_) {
    const uint32_t left = rest == nullptr ? allocator.Before(first) : Allocator::kNone;
    const uint32_t right = allocator.After(end);
    const int before = RankOf(slot, left, limit, true);
    const int after = RankOf(slot, right, limit, false);
    if (std::min(before, after) == kBlocked) {
      victims_.resize(kept);
      return false;
    }
    const bool is_chain = after == static_cast<int>(EvictionClass::kInterior);
    const bool goes_left = before < after || (before == after && is_chain);
    if (goes_left && !windows_.empty() && IsPlanned(slot, left)) {
      rest = &windows_.at(KeyOf(slot, left));
      total += *rest;
      continue;
    }
    uint32_t& edge = goes_left ? first : end;
    edge = goes_left ? left : right;
    take(edge);
    total += allocator.BytesOf(edge);
  }
  if (rest != nullptr) *rest = 0;
  if (has_many_) MarkWindow(slot, first, end, total > bytes ? total - bytes : 0);
  last = end;
  return true;
}

// An extent in what the node's last window has left.
bool Inventory::TakeRest(uint32_t slot, uint64_t bytes, const Search& search) {
  const auto window = windows_.find(KeyOf(slot, search.last));
  if (window == windows_.end() || window->second < bytes) return false;
  window->second = UnitsBelow(window->second - bytes);
  return true;
}

void Inventory::MarkWindow(uint32_t slot, uint32_t first, uint32_t last, uint64_t rest_bytes) {
  for (uint32_t at = first; at != last; at = nodes_[slot].allocator->After(at)) {
    windows_[KeyOf(slot, at)] = 0;
  }
  windows_[KeyOf(slot, last)] = UnitsBelow(rest_bytes);
}

bool Inventory::IsPlanned(uint32_t slot, uint32_t block) const {
  return windows_.contains(KeyOf(slot, block));
}

}  // namespace mooncake::store
