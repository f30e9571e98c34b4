// Objects and their copies. Chains are in chains.cc, room in room.cc.
#include "store/inventory.h"

#include <algorithm>

#include "base/check.h"

namespace mooncake::store {
namespace {

constexpr size_t kMaxShort = 1 << 20;  // who is pushed out is found again by a scan

}  // namespace

Inventory::Inventory(const MasterOptions& options)
    : stripe_bytes_(options.stripe_bytes),
      step_evictions_(static_cast<int>(options.step_evictions)),
      evicts_oldest_(options.placement == "free-ratio-first"),
      objects_(options.seed),
      nodes_(options.eviction) {
  auto placement = Placer::Make(options.placement, options.seed);
  MC_CHECK(placement.ok(), "%s", placement.status().message().c_str());
  placement_ = std::move(placement).value();
}

uint32_t Inventory::Find(std::string_view key, uint32_t hash) const {
  const uint32_t index = objects_.Find(key, hash);
  return index != kNoIndex && !IsDying(objects_[index]) ? index : kNoIndex;
}

bool Inventory::IsReadable(const Object& object, size_t copy) const {
  const auto extents = object.copy(copy);
  return !extents[0].is_retired && std::ranges::all_of(extents, [this](const CopyExtent& extent) {
    return !extent.is_void() && nodes_[extent.node].is_readable();
  });
}

bool Inventory::IsReadable(const Object& object) const {
  if (object.state != ObjectState::kCommitted) return false;
  if (object.group != kNoIndex && !groups_[object.group].is_complete()) return false;
  for (size_t copy = 0; copy < object.copy_count; ++copy) {
    if (IsReadable(object, copy)) return true;
  }
  return false;
}

uint64_t Inventory::TotalBytes(const Object& object) const {
  uint64_t bytes = 0;
  for (const CopyExtent& extent : object.extents()) {
    if (!extent.is_void()) bytes += nodes_[extent.node].allocator->BytesOf(extent.block);
  }
  return bytes;
}

uint32_t Inventory::Create(const ObjectShape& shape, Room& room) {
  const auto copies = static_cast<uint8_t>(room.extents.size() / shape.stripes);
  const uint32_t index = objects_.Add(shape, copies);
  objects_[index].touched = now_used_;
  TakeOver(index, room);
  return index;
}

void Inventory::TakeOver(uint32_t index, Room& room) {
  const size_t stripes = objects_[index].head().stripes;
  for (size_t at = 0; at < room.extents.size(); at += stripes) {
    AddCopy(index, std::span(room.extents).subspan(at, stripes));
  }
  room.extents.clear();
}

void Inventory::JoinGroup(uint32_t index, std::string_view name, uint32_t size) {
  Object& object = objects_[index];
  object.group = groups_.Join(name, size, index);
  CountPin(object.group, object.pin, 1);
}

// A pin of one member holds all of its group, the others from the next slice of work on.
void Inventory::CountPin(uint32_t number, Pin pin, int change) {
  Group& group = groups_[number];
  const Pin before = group.pin();
  group.pins[static_cast<int>(pin)] += change;
  if (group.pin() == before) return;
  if (group.unsettled == 0) unsettled_.push_back(number);
  group.unsettled = static_cast<uint32_t>(group.members.size());
}

// Classifies its next member, if it has any that is not settled.
void Inventory::Settle(uint32_t number) {
  Group& group = groups_[number];
  group.unsettled = std::min(group.unsettled, static_cast<uint32_t>(group.members.size()));
  if (group.unsettled > 0) Reclassify(group.members[--group.unsettled]);
}

void Inventory::Commit(uint32_t index) {
  Object& object = objects_[index];
  object.state = ObjectState::kCommitted;
  object.touched = now_used_;
  for (size_t at = 0; at < object.copy_count; ++at) EnterCopy(index, at);
  if (object.group != kNoIndex) ++groups_[object.group].committed;
  ++committed_;
}

void Inventory::Replace(uint32_t index) {
  const Object& object = objects_[index];
  const uint32_t hash = objects_.HashOf(object.key());
  const uint32_t there = objects_.Find(object.key(), hash);
  if (there != kNoIndex && objects_[there].state == ObjectState::kCommitted) {
    Adopt(there, index);
    Remove(there, Cause::kReplaced, index);
  } else if (there != kNoIndex) {
    objects_.ForgetKey(there);
    objects_[there].is_superseded = true;
  }
  objects_.TakeKey(index, hash);
}

void Inventory::Remove(uint32_t index, Cause cause, uint32_t heir) {
  Object& object = objects_[index];
  if (object.state == ObjectState::kCommitted) {
    --committed_;
    for (const CopyExtent& extent : object.extents()) {
      if (!extent.is_void()) nodes_.Leave(extent.node, extent.block);
    }
  }
  if (object.has_key) objects_.ForgetKey(index);
  LeaveGroup(index, cause, heir);
  object.state = ObjectState::kRemoved;
  UnlinkFromParent(index, cause == Cause::kEvicted);
  Sweep(index);
}

void Inventory::LeaveGroup(uint32_t index, Cause cause, uint32_t heir) {
  Object& object = objects_[index];
  if (object.group == kNoIndex) return;
  if (object.state == ObjectState::kCommitted) {
    --groups_[object.group].committed;
    const bool is_kept = cause == Cause::kReplaced && objects_[heir].group == object.group;
    if (!is_kept) groups_.Kill(object.group);
  }
  CountPin(object.group, object.pin, -1);
  groups_.Leave(object.group, index);
  object.group = kNoIndex;
}

// Frees what a removed object has as far as nobody needs it.
void Inventory::Sweep(uint32_t index) {
  Object& object = objects_[index];
  if (object.holds > 0) return;
  while (object.copy_count > 0) DropCopy(index, object.copy_count - 1, nullptr);
  if (object.data != nullptr) objects_.FreeData(index);
  if (object.child == kNoIndex) objects_.Drop(index);
}

void Inventory::SetPin(uint32_t index, Pin pin) {
  Object& object = objects_[index];
  const uint64_t bytes = TotalBytes(object);
  pinned_bytes_[static_cast<int>(object.pin)] -= bytes;
  pinned_bytes_[static_cast<int>(pin)] += bytes;
  if (object.group != kNoIndex) {
    CountPin(object.group, pin, 1);  // first, so that the same pin again unsettles nobody
    CountPin(object.group, object.pin, -1);
  }
  object.pin = pin;
  Reclassify(index);
}

void Inventory::Use(uint32_t index) {
  Object& object = objects_[index];
  object.touched = now_used_;
  for (const CopyExtent& extent : object.extents()) {
    if (!extent.is_void()) nodes_[extent.node].policy->Touch(extent.block);
  }
}

void Inventory::Hold(uint32_t index) {
  if (++objects_[index].holds == 1) Reclassify(index);
}

void Inventory::Unhold(uint32_t index) {
  Object& object = objects_[index];
  MC_CHECK(object.holds > 0, "object %u is not held", index);
  if (--object.holds > 0) return;
  if (object.state == ObjectState::kRemoved) return Sweep(index);
  if (object.has_retired) DropRetired(index);
  Reclassify(index);
}

Pin Inventory::PinOf(const Object& object) const {
  if (object.group == kNoIndex) return object.pin;
  return std::max(object.pin, groups_[object.group].pin());
}

EvictionClass Inventory::ClassOf(const Object& object, size_t copy) const {
  const Pin pin = PinOf(object);
  if (object.holds > 0 || pin == Pin::kHard) return EvictionClass::kHeld;
  if (copy >= object.wanted) return EvictionClass::kExtra;
  if (pin == Pin::kSoft) return EvictionClass::kSoftPinned;
  return object.child != kNoIndex ? EvictionClass::kInterior : EvictionClass::kLeaf;
}

void Inventory::Reclassify(uint32_t index, bool goes_next) {
  const Object& object = objects_[index];
  if (object.state != ObjectState::kCommitted) return;
  for (size_t copy = 0; copy < object.copy_count; ++copy) {
    const EvictionClass to = ClassOf(object, copy);
    for (const CopyExtent& extent : object.copy(copy)) {
      if (!extent.is_void()) nodes_.Classify(extent.node, extent.block, to, goes_next);
    }
  }
}

void Inventory::EnterCopy(uint32_t index, size_t at) {
  const Object& object = objects_[index];
  const EvictionClass in = ClassOf(object, at);
  for (const CopyExtent& extent : object.copy(at)) {
    if (!extent.is_void()) nodes_.Enter(extent.node, extent.block, in, object.depth);
  }
}

void Inventory::AddCopy(uint32_t index, std::span<const Reserved> extents) {
  copy_.clear();
  uint64_t bytes = 0;
  for (const Reserved& extent : extents) {
    NodeRecord& node = nodes_[extent.slot];
    if (!node.reserved.empty()) node.reserved.erase(extent.block);
    node.allocator->SetTag(extent.block, index);
    bytes += node.allocator->BytesOf(extent.block);
    copy_.push_back({extent.slot, 0, extent.block});
  }
  objects_.AddCopy(index, copy_);
  Object& object = objects_[index];
  pinned_bytes_[static_cast<int>(object.pin)] += bytes;
  if (object.state == ObjectState::kCommitted) EnterCopy(index, object.copy_count - 1);
}

void Inventory::DropCopy(uint32_t index, size_t at, const uint64_t* dirty_peer) {
  Object& object = objects_[index];
  for (const CopyExtent& extent : object.copy(at)) {
    if (extent.is_void()) continue;
    NodeRecord& node = nodes_[extent.node];
    if (object.state == ObjectState::kCommitted) nodes_.Leave(extent.node, extent.block);
    pinned_bytes_[static_cast<int>(object.pin)] -= node.allocator->BytesOf(extent.block);
    if (dirty_peer == nullptr || node.is_lost) {
      nodes_.Free(extent.node, extent.block);
    } else {
      counters_.fences += !node.quarantine.contains(*dirty_peer);
      nodes_.Quarantine(extent.node, extent.block, *dirty_peer);
    }
  }
  objects_.EraseCopy(index, at);
  Reclassify(index);  // an extra copy may now be one that is wanted
}

void Inventory::RetireCopy(uint32_t index, size_t at) {
  Object& object = objects_[index];
  object.copy(at)[0].is_retired = true;
  object.has_retired = true;
  const auto extents = object.extents();
  const size_t stripes = object.head().stripes;
  bool is_left = false;
  for (size_t copy = 0; copy < extents.size(); copy += stripes) {
    is_left = is_left || !extents[copy].is_retired;
  }
  if (!is_left) return Remove(index, Cause::kGone);
  if (object.holds == 0) DropRetired(index);
  if (short_.size() < kMaxShort) short_.emplace_back(index, object.generation);
}

void Inventory::DropRetired(uint32_t index) {
  Object& object = objects_[index];
  for (size_t at = object.copy_count; at-- > 0;) {
    if (object.copy(at)[0].is_retired) DropCopy(index, at, nullptr);
  }
  object.has_retired = false;
}

uint32_t Inventory::TakeShort() {
  while (!short_.empty()) {
    const auto [index, generation] = short_.front();
    short_.pop_front();
    const Object& object = objects_[index];
    if (object.state == ObjectState::kCommitted && object.generation == generation) return index;
  }
  return kNoIndex;
}

// The next committed object with an extent among the blocks from `cursor` on, which moves on;
// kNoIndex with the cursor at the end when there is none, or after `looks` blocks before it.
uint32_t Inventory::NextObjectOn(uint32_t slot, uint32_t& cursor, int looks) const {
  const Allocator& allocator = *nodes_[slot].allocator;
  for (; looks > 0 && cursor < allocator.block_room(); --looks) {
    const uint32_t block = cursor++;
    if (nodes_[slot].policy->Contains(block)) return static_cast<uint32_t>(allocator.TagOf(block));
  }
  return kNoIndex;
}

size_t Inventory::ExtentAt(const Object& object, uint32_t slot, uint32_t block) const {
  const auto extents = object.extents();
  const auto found = std::ranges::find_if(extents, [&](const CopyExtent& extent) {
    return extent.node == slot && extent.block == block;
  });
  MC_CHECK(found != extents.end(), "no extent is block %u of node %u", block, slot);
  return found - extents.begin();
}

void Inventory::FreeFenced(uint32_t slot, uint64_t peer_id) {
  NodeRecord& node = nodes_[slot];
  const auto found = node.quarantine.find(peer_id);
  if (found == node.quarantine.end()) return;
  const auto& blocks = found->second.blocks;
  if (node.fenced.empty() && !blocks.empty()) fenced_.push_back(slot);
  node.fenced.insert(node.fenced.end(), blocks.begin(), blocks.end());
  node.quarantine.erase(found);
}

// Frees the first used block of a lost node, or drops the node once it has none.
void Inventory::SweepLost(uint32_t slot) {
  const Allocator& allocator = *nodes_[slot].allocator;
  uint32_t block = allocator.first_block();
  if (allocator.IsFree(block)) block = allocator.After(block);
  if (block == Allocator::kNone) {
    nodes_.lost().pop_front();
    return nodes_.Drop(slot);
  }
  const auto index = static_cast<uint32_t>(allocator.TagOf(block));
  if (index == kNoIndex) return nodes_.Free(slot, block);
  Object& object = objects_[index];
  const size_t at = ExtentAt(object, slot, block);
  if (object.state == ObjectState::kCommitted) nodes_.Leave(slot, block);
  pinned_bytes_[static_cast<int>(object.pin)] -= allocator.BytesOf(block);
  object.extents()[at].block = kNoIndex;
  nodes_.Free(slot, block);
  if (object.state == ObjectState::kCommitted) RetireCopy(index, at / object.head().stripes);
}

// Its next member goes; one that is being written learns it at its end.
void Inventory::SweepDead(uint32_t group) {
  const uint32_t index = groups_[group].members.back();
  if (objects_[index].state == ObjectState::kCommitted) return Remove(index, Cause::kGone);
  objects_[index].is_doomed = true;
  objects_[index].group = kNoIndex;
  CountPin(group, objects_[index].pin, -1);
  groups_.Leave(group, index);
}

bool Inventory::has_work() const {
  return !groups_.dead().empty() || !unsettled_.empty() || !nodes_.lost().empty() ||
         !fenced_.empty();
}

bool Inventory::Work(int& steps) {
  for (; has_work() && steps > 0; --steps) {
    if (!groups_.dead().empty()) {
      SweepDead(groups_.dead().front());
    } else if (!unsettled_.empty()) {
      Settle(unsettled_.front());
      if (groups_[unsettled_.front()].unsettled == 0) unsettled_.pop_front();
    } else if (!nodes_.lost().empty()) {
      SweepLost(nodes_.lost().front());
    } else {
      NodeRecord& node = nodes_[fenced_.front()];
      if (node.is_there() && !node.fenced.empty()) {
        node.quarantined_bytes -= node.allocator->BytesOf(node.fenced.back());
        nodes_.Free(fenced_.front(), node.fenced.back());
        node.fenced.pop_back();
      }
      if (!node.is_there() || node.fenced.empty()) fenced_.pop_front();
    }
  }
  return has_work();
}

}  // namespace mooncake::store
