// Room for objects: what is free, then what may be evicted, and only if that will do.
//
// All extents of a put are planned before the first eviction: what is free is reserved, for the
// others windows are found (windows.cc), and only when there are enough does anything go. A step
// evicts so much; what it then has freed of a window is reserved until the next one, which plans
// the rest anew.
#include <algorithm>

#include "base/check.h"
#include "store/inventory.h"

namespace mooncake::store {
namespace {

// Evicting takes some 300 ns, looking at a block some 10.
constexpr int kLooksAnEviction = 10;
constexpr uint32_t kMaxAsks = 1000;
constexpr int kVisitsAnEviction = 4;  // of nodes; some 75 ns each where all are full
constexpr int kLeastVisits = 1000;

}  // namespace

uint64_t Wanted::ExtentBytes(size_t stripe) const {
  if (stripes == 1) return kHeaderBytes + size_bytes;
  return kHeaderBytes + std::min(stripe_bytes, size_bytes - stripe_bytes * stripe);
}

void Inventory::BeginStep() {
  ++now_used_;
  work_ = step_evictions_;
  looks_ = kLooksAnEviction * step_evictions_;
  visits_ = std::max(kVisitsAnEviction * step_evictions_, kLeastVisits);
  adoptable_ = kMaxAdopted;
}

// A batch waits for its cache misses together: for records, then for what varies, then for slots.
void Inventory::NearVictims(size_t count, uint64_t bytes) {
  const size_t most = 4 * count;  // more would push each other out again
  size_t sum = 0;
  for (uint32_t slot = 0; slot < nodes_.size() && sum < most; ++slot) {
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
    sum += near_.size();
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
  // Without work to do with it, a run that was begun is not touched.
  RoomOutcome outcome = RoomOutcome::kMaking;
  if (work_ > 0 || room.grown.slot == kNoIndex) {
    outcome = PlanCopies(wanted, room);
    if (outcome == RoomOutcome::kFull) {
      return unsettled_.empty() ? outcome : RoomOutcome::kMaking;  // more may be evictable by then
    }
    const bool is_done = CarryOut(room) && outcome != RoomOutcome::kMaking;
    outcome = is_done ? RoomOutcome::kDone : RoomOutcome::kMaking;
  }
  if (outcome == RoomOutcome::kMaking) {
    for (const Reserved& extent : room.extents) Keep(extent);
  }
  return outcome;
}

// Fewer copies if need be, unless all must be: one in stripes may need the domains of another.
RoomOutcome Inventory::PlanCopies(Wanted wanted, Room& room) {
  Reserved centre = FreeGrown(room);
  wanted.copies -= room.fewer_copies;
  for (;; --wanted.copies, ++room.fewer_copies, centre = {}) {
    RecallDomains(wanted, room);
    const RoomOutcome outcome = Plan(wanted, room, centre);
    if (outcome != RoomOutcome::kFull) return outcome;
    const size_t whole = (room.extents.size() + plan_.size()) / wanted.stripes;
    if (wanted.is_strict || wanted.stripes == 1 || whole + 1 >= wanted.copies) {
      return KeepWholeCopies(wanted, room) ? RoomOutcome::kDone : RoomOutcome::kFull;
    }
    DropPlan(0);
    GiveBack(room);
  }
}

// False: there are none, or all must be; nothing is left then.
bool Inventory::KeepWholeCopies(const Wanted& wanted, Room& room) {
  const size_t copies = (room.extents.size() + plan_.size()) / wanted.stripes;
  const size_t kept = wanted.is_strict ? 0 : copies * wanted.stripes;
  DropPlan(kept - std::min(kept, room.extents.size()));
  if (kept == 0) GiveBack(room);
  for (; room.extents.size() > kept; room.extents.pop_back()) {
    nodes_.FreeReserved(room.extents.back());
  }
  return kept > 0;
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
  if (wanted.stripes > 1) SurveyDomains();
  for (size_t at = 0; at < room.extents.size(); ++at) {
    const uint32_t domain = nodes_.views()[room.extents[at].slot].domain;
    auto& domains =
        at / wanted.stripes == room.extents.size() / wanted.stripes ? own_domains_ : taken_domains_;
    if (std::ranges::find(domains, domain) == domains.end()) domains.push_back(domain);
  }
}

// How much each could hold if all that can go went.
void Inventory::SurveyDomains() {
  domain_bytes_.assign(nodes_.size(), 0);
  for (const NodeView& node : nodes_.views()) {
    if (node.is_open) domain_bytes_[node.domain] += node.free_bytes + node.evictable_bytes;
  }
}

// `placed`: extents, with the one that is on this node.
void Inventory::TakeDomain(const Wanted& wanted, size_t placed, uint32_t slot) {
  if (wanted.copies == 1) return;
  const uint32_t domain = nodes_.views()[slot].domain;
  if (std::ranges::find(own_domains_, domain) == own_domains_.end()) {
    own_domains_.push_back(domain);
  }
  if (placed % wanted.stripes != 0) return;
  taken_domains_.insert(taken_domains_.end(), own_domains_.begin(), own_domains_.end());
  own_domains_.clear();
  --copies_left_;
}

// The stripes of a copy lie in so many domains that each copy to come still has its share; the
// first of them could hold its part of the copy.
bool Inventory::IsAllowed(const Wanted& wanted, uint32_t slot) const {
  if (wanted.copies == 1 || wanted.stripes == 1) return true;
  const uint32_t domain = nodes_.views()[slot].domain;
  const size_t left = domain_count_ - std::min<size_t>(domain_count_, taken_domains_.size());
  const size_t share = left / copies_left_;
  if (own_domains_.empty()) {
    const uint64_t copy_bytes = wanted.size_bytes + wanted.stripes * kHeaderBytes;
    return domain_bytes_[domain] >= copy_bytes / std::max<size_t>(share, 1);
  }
  if (std::ranges::find(own_domains_, domain) != own_domains_.end()) return true;
  return own_domains_.size() < share;
}

// What of all that is wanted is not there yet; it is left in `plan_`. `centre`: see FreeGrown.
RoomOutcome Inventory::Plan(const Wanted& wanted, Room& room, const Reserved& centre) {
  const size_t whole = size_t{wanted.copies} * wanted.stripes;
  plan_.clear();
  victims_.clear();
  if (!windows_.empty()) windows_.clear();
  has_many_ = room.extents.size() + 1 < whole;
  ranks_victims_ = evicts_oldest_ && wanted.preferred.empty();
  if (has_many_ && !CouldHold(wanted, room)) return RoomOutcome::kFull;
  while (room.extents.size() + plan_.size() < whole) {
    if (visits_ <= 0 && !plan_.empty()) return RoomOutcome::kMaking;
    const Reserved begun = plan_.empty() ? centre : Reserved{};
    const RoomOutcome outcome = PlanExtent(wanted, room, begun);
    if (outcome != RoomOutcome::kDone) return outcome;
  }
  return RoomOutcome::kDone;
}

// A bound: whether what cannot be done without would fit if all that can go went.
bool Inventory::CouldHold(const Wanted& wanted, const Room& room) const {
  uint64_t bytes = 0, most = 0;
  const size_t needed = size_t{wanted.stripes} * (wanted.is_strict ? wanted.copies : 1);
  for (size_t at = room.extents.size(); at < needed; ++at) {
    bytes += wanted.ExtentBytes(at % wanted.stripes);
  }
  for (const NodeView& node : nodes_.views()) {
    if (node.is_open) most += node.free_bytes + node.evictable_bytes;
  }
  return bytes <= most;
}

RoomOutcome Inventory::PlanExtent(const Wanted& wanted, Room& room, const Reserved& centre) {
  const size_t at = room.extents.size() + plan_.size();
  const uint64_t bytes = wanted.ExtentBytes(at % wanted.stripes);
  Planned planned{.bytes = bytes, .first_victim = victims_.size()};
  RoomOutcome outcome = PlanOn(false, wanted, room, centre, planned);
  const bool is_last_resort = outcome == RoomOutcome::kFull && nodes_.has_doubts();
  if (is_last_resort) outcome = PlanOn(true, wanted, room, centre, planned);
  if (outcome != RoomOutcome::kDone) return outcome;
  plan_.push_back(planned);
  placement_->Take(planned.extent.slot);
  TakeDomain(wanted, at + 1, planned.extent.slot);
  return RoomOutcome::kDone;
}

// On nodes that are doubted, or on the others.
RoomOutcome Inventory::PlanOn(bool is_doubted, const Wanted& wanted, Room& room,
                              const Reserved& centre, Planned& planned) {
  const auto found = PlaceFree(is_doubted, wanted, planned.bytes);
  if (!found) return FindRoom(planned, room, centre);
  planned.extent = *found;
  return RoomOutcome::kDone;
}

// False: the step's work is used up, and the rest of the plan is dropped.
bool Inventory::CarryOut(Room& room) {
  for (size_t at = 0; at < plan_.size(); ++at) {
    Planned& planned = plan_[at];
    if (planned.extent.block == kNoIndex && !Evict(planned, room)) {
      DropPlan(at + 1);
      room.searched_bytes = 0;  // its windows are looked for again
      return false;
    }
    room.extents.push_back(planned.extent);
  }
  return true;
}

void Inventory::DropPlan(size_t from) {
  for (size_t at = from; at < plan_.size(); ++at) {
    if (plan_[at].extent.block != kNoIndex) nodes_.FreeReserved(plan_[at].extent);
  }
  plan_.resize(std::min(from, plan_.size()));
}

// On the best node that has it free; nodes where it would have to be made are left in `order_`.
std::optional<Reserved> Inventory::PlaceFree(bool is_doubted, const Wanted& wanted,
                                             uint64_t bytes) {
  // A node that is only ranked costs a few ns, and as much for each name that it is compared with.
  visits_ -= static_cast<int>(nodes_.size() * (1 + wanted.preferred.size()) / 8);
  placement_->Begin(nodes_.views(), {bytes, wanted.host, wanted.preferred});
  for (const uint32_t domain : taken_domains_) placement_->Exclude(domain);
  order_.clear();
  for (uint32_t slot = placement_->Next(); slot != Placer::kNone; slot = placement_->Next()) {
    --visits_;
    if (nodes_.views()[slot].is_doubted != is_doubted || !IsAllowed(wanted, slot)) continue;
    if (!windows_.empty() && IsPlanned(slot, nodes_[slot].allocator->Fitting(bytes))) {
      order_.push_back(slot);
      continue;
    }
    if (const auto found = Reserve(slot, bytes)) return found;
    order_.push_back(slot);
  }
  return std::nullopt;
}

std::optional<Reserved> Inventory::Reserve(uint32_t slot, uint64_t bytes) {
  if (nodes_.views()[slot].free_bytes < bytes) return std::nullopt;
  const auto block = nodes_.Allocate(slot, bytes, kNoIndex);
  if (!block) return std::nullopt;
  return Reserved{slot, nodes_[slot].id, *block};
}

RoomOutcome Inventory::MakeRoomOn(uint32_t slot, uint64_t bytes, Room& room, Reserved& reserved) {
  if (work_ <= 0) return RoomOutcome::kMaking;
  victims_.clear();
  if (!windows_.empty()) windows_.clear();
  has_many_ = ranks_victims_ = false;
  order_.assign(1, slot);
  const Reserved centre = FreeGrown(room);
  Planned planned{.bytes = bytes};
  const RoomOutcome outcome = FindRoom(planned, room, centre);
  if (outcome != RoomOutcome::kDone) return outcome;
  if (!Evict(planned, room)) return RoomOutcome::kMaking;
  reserved = planned.extent;
  return RoomOutcome::kDone;
}

// What was reserved of a window is free again while it is gone on with, so that it counts: returns
// the free block that holds it.
Reserved Inventory::FreeGrown(Room& room) {
  const Reserved grown = std::exchange(room.grown, {});
  if (grown.slot == kNoIndex || !nodes_.IsThere(grown)) return {};
  nodes_.FreeReserved(grown);
  return {grown.slot, grown.node, nodes_[grown.slot].last_freed};
}

// Keeps what is free of a window for its put, until the next step goes on with it.
void Inventory::ReserveRun(uint32_t slot, uint32_t free_block, uint64_t bytes, Room& room) {
  const NodeRecord& node = nodes_[slot];
  const uint64_t run = std::min(node.allocator->BytesOf(free_block), bytes);
  room.grown = {slot, node.id, nodes_.AllocateFrom(slot, free_block, run, kNoIndex)};
  Keep(room.grown);
}

// Evicts a window and reserves its space. False: the step's work is used up before.
bool Inventory::Evict(Planned& planned, Room& room) {
  const uint32_t slot = planned.extent.slot;
  size_t at = planned.first_victim;
  while (at < planned.victims_end && EvictVictim(slot, victims_[at])) ++at;
  const bool is_free = at == planned.victims_end;
  if (const auto found = is_free ? Reserve(slot, planned.bytes) : std::nullopt) {
    planned.extent = *found;
    return true;
  }
  if (at == planned.first_victim) return false;
  ReserveRun(slot, nodes_[slot].last_freed, planned.bytes, room);
  room.grown_limit = planned.limit;
  room.asks = 0;
  return false;
}

// False: the step's work is used up, or its group was pinned just now; the block is still there.
bool Inventory::EvictVictim(uint32_t slot, const Victim& victim) {
  const Object& object = objects_[victim.index];
  const NodeRecord& node = nodes_[slot];
  // It may be gone with another of the window.
  if (!node.policy->Contains(victim.block)) return true;
  const EvictionClass in = node.policy->ClassOf(victim.block);
  if (in != EvictionClass::kExtra) {
    const bool may_go =
        unsettled_.empty() || in >= ClassOf(object, CopyAt(object, slot, victim.block));
    if (may_go) return EvictTree(victim.index);
    Reclassify(victim.index);
    return false;
  }
  if (work_-- <= 0) return false;
  counters_.evicted_bytes += node.allocator->BytesOf(victim.block);
  DropCopy(victim.index, CopyAt(object, slot, victim.block), nullptr);
  return true;
}

}  // namespace mooncake::store
