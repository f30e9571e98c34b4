#include "store/node_table.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace mooncake::store {

uint32_t NodeTable::Find(NodeId node) const {
  const auto found = slot_of_.find(node);
  return found == slot_of_.end() ? kNoIndex : found->second;
}

uint32_t NodeTable::FindNamed(std::string_view name) const {
  for (uint32_t slot = 0; slot < size(); ++slot) {
    if (nodes_[slot].is_there() && nodes_[slot].name == name) return slot;
  }
  return kNoIndex;
}

uint32_t NodeTable::HostOf(const std::string& host_id) const {
  const auto found = hosts_.find(host_id);
  return found == hosts_.end() ? Wish::kNoHost : found->second;
}

uint32_t NodeTable::Add(const NodeRegister& event, double now_s) {
  uint32_t slot = 0;
  while (slot < size() && nodes_[slot].allocator) ++slot;
  if (slot == size()) {
    nodes_.emplace_back();
    views_.emplace_back();
  }
  NodeRecord& node = nodes_[slot];
  node.id = event.node;
  node.endpoint = event.endpoint;
  node.host_id = event.host_id;
  node.name = event.name.empty() ? event.endpoint : event.name;
  node.domain = event.domain.empty() ? event.host_id : event.domain;
  node.seen_s = now_s;
  node.allocator.emplace(event.capacity_bytes);
  auto policy = MakeEviction(eviction_);
  MC_CHECK(policy.ok(), "%s", policy.status().message().c_str());
  node.policy = std::move(policy).value();
  slot_of_[event.node] = slot;
  has_opened_ = true;
  views_[slot] = {true, 0,        0, node.allocator->capacity_bytes(), node.allocator->free_bytes(),
                  0,    node.name};
  Renumber();
  return slot;
}

// A host or a domain is known by the first slot that is of it.
void NodeTable::Renumber() {
  hosts_.clear();
  std::unordered_map<std::string_view, uint32_t> domains;
  for (uint32_t slot = 0; slot < size(); ++slot) {
    if (!nodes_[slot].is_there()) continue;
    views_[slot].host = hosts_.try_emplace(nodes_[slot].host_id, slot).first->second;
    views_[slot].domain = domains.try_emplace(nodes_[slot].domain, slot).first->second;
  }
  domain_count_ = Placer::CountDomains(views_);
}

void NodeTable::SetState(uint32_t slot, NodeState state) {
  has_opened_ = has_opened_ || (state == NodeState::kOnline && !views_[slot].is_open);
  nodes_[slot].state = state;
  const bool was_open = std::exchange(views_[slot].is_open, state == NodeState::kOnline);
  if (was_open != views_[slot].is_open) domain_count_ = Placer::CountDomains(views_);
}

void NodeTable::Doubt(uint32_t slot, double until_s) {
  const bool is_known = std::exchange(nodes_[slot].doubted_until_s, until_s) == until_s;
  if (is_known) return;
  std::erase_if(doubted_, [slot](const Doubted& before) { return before.slot == slot; });
  doubted_.push_back({slot, nodes_[slot].id, until_s});
  views_[slot].is_doubted = true;
}

void NodeTable::EndDoubts(double now_s) {
  for (; !doubted_.empty() && doubted_.front().end_s <= now_s; doubted_.pop_front()) {
    const Doubted& ended = doubted_.front();
    if (nodes_[ended.slot].id == ended.node) views_[ended.slot].is_doubted = false;
  }
}

void NodeTable::Lose(uint32_t slot) {
  NodeRecord& node = nodes_[slot];
  slot_of_.erase(node.id);
  node.is_lost = true;
  views_[slot].is_open = false;
  node.reserved.clear();
  lost_.push_back(slot);
  Renumber();
}

void NodeTable::Drop(uint32_t slot) {
  MC_CHECK(nodes_[slot].is_lost && nodes_[slot].allocator->used_bytes() == 0, "node %u", slot);
  nodes_[slot] = NodeRecord{};
  views_[slot] = NodeView{};
}

std::optional<uint32_t> NodeTable::Allocate(uint32_t slot, uint64_t bytes, uint32_t index) {
  const auto extent = nodes_[slot].allocator->Allocate(bytes, index);
  if (!extent) return std::nullopt;
  views_[slot].free_bytes -= extent->bytes;
  return extent->block;
}

uint32_t NodeTable::AllocateFrom(uint32_t slot, uint32_t free_block, uint64_t bytes,
                                 uint32_t index) {
  const Extent extent = nodes_[slot].allocator->AllocateFrom(free_block, bytes, index);
  views_[slot].free_bytes -= extent.bytes;
  return extent.block;
}

void NodeTable::Free(uint32_t slot, uint32_t block) {
  Allocator& allocator = *nodes_[slot].allocator;
  views_[slot].free_bytes += allocator.BytesOf(block);
  nodes_[slot].last_freed = allocator.Free(block);
}

void NodeTable::Quarantine(uint32_t slot, uint32_t block, uint64_t peer_id) {
  NodeRecord& node = nodes_[slot];
  node.allocator->SetTag(block, kNoIndex);
  node.quarantine[peer_id].blocks.push_back(block);
  node.quarantined_bytes += node.allocator->BytesOf(block);
}

void NodeTable::Enter(uint32_t slot, uint32_t block, EvictionClass in, uint32_t depth) {
  nodes_[slot].policy->Insert(block, in, {depth});
  if (in != EvictionClass::kHeld) {
    views_[slot].evictable_bytes += nodes_[slot].allocator->BytesOf(block);
  }
}

void NodeTable::Classify(uint32_t slot, uint32_t block, EvictionClass to, bool goes_next) {
  NodeRecord& node = nodes_[slot];
  const bool was_held = node.policy->ClassOf(block) == EvictionClass::kHeld;
  const bool is_held = to == EvictionClass::kHeld;
  if (was_held && !is_held) views_[slot].evictable_bytes += node.allocator->BytesOf(block);
  if (!was_held && is_held) views_[slot].evictable_bytes -= node.allocator->BytesOf(block);
  node.policy->SetClass(block, to, goes_next);
}

void NodeTable::Leave(uint32_t slot, uint32_t block) {
  NodeRecord& node = nodes_[slot];
  if (node.policy->ClassOf(block) != EvictionClass::kHeld) {
    views_[slot].evictable_bytes -= node.allocator->BytesOf(block);
  }
  node.policy->Remove(block);
}

void NodeTable::FreeReserved(const Reserved& reserved) {
  if (!IsThere(reserved)) return;
  nodes_[reserved.slot].reserved.erase(reserved.block);
  Free(reserved.slot, reserved.block);
}

}  // namespace mooncake::store
