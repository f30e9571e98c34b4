// Lookups, and the leases and pins that protect what was found.
#include <algorithm>

#include "base/check.h"
#include "store/master_core.h"

namespace mooncake::store {
namespace {

uint64_t AnswerBytes(const LookupReply& reply) {
  return 48 * reply.items.size() + 4 * reply.checksums.size() + 12 * reply.placements.size() +
         (kMaxNameBytes + 16) * reply.nodes.size();
}

}  // namespace

// Hashes keys, and brings near what will be looked at.
void MasterCore::Near(std::span<const std::string_view> keys) {
  const ObjectTable& objects = inventory_.objects();
  hashes_.clear();
  for (const auto& key : keys) {
    hashes_.push_back(HashKey(key, options_.seed));
    objects.PrefetchSlot(static_cast<uint32_t>(hashes_.back() >> 32));
  }
  for (const uint64_t hash : hashes_) objects.PrefetchRecord(static_cast<uint32_t>(hash >> 32));
  for (const uint64_t hash : hashes_) objects.PrefetchData(static_cast<uint32_t>(hash >> 32));
}

uint32_t MasterCore::FindReadable(std::string_view key, uint64_t hash) const {
  const uint32_t index = inventory_.objects().Find(key, static_cast<uint32_t>(hash >> 32));
  return index != kNoIndex && inventory_.IsReadable(inventory_.objects()[index]) ? index : kNoIndex;
}

LookupReply MasterCore::Step(const Lookup& event, double now_s) {
  now_s = Advance(now_s);
  LookupReply reply;
  Session* session = Known(event.session, now_s);
  if (session == nullptr) return reply;
  reply.is_known = true;
  EndLeases(*session, event.released);
  ++last_answer_;
  Near(event.keys);
  found_.clear();
  reply.items.reserve(event.keys.size());
  bool is_cut = false;
  for (size_t at = 0; at < event.keys.size(); ++at) {
    const uint32_t index = is_cut ? kNoIndex : FindReadable(event.keys[at], hashes_[at]);
    is_cut = is_cut || (event.stop_at_miss && index == kNoIndex);
    reply.items.push_back(index == kNoIndex ? LookupReply::Item{} : Found(index, reply));
    if (index != kNoIndex) found_.push_back(index);
    if (AnswerBytes(reply) > kMaxAnswerBytes) {
      reply = {};
      reply.is_known = reply.is_too_large = true;
      return reply;
    }
  }
  Counters& counters = inventory_.counters();
  counters.gets += event.keys.size();
  counters.hits += found_.size();
  counters.misses += event.keys.size() - found_.size();
  if (!found_.empty()) reply.lease = AddLease(event, now_s);
  return reply;
}

LookupReply::Item MasterCore::Found(uint32_t index, LookupReply& reply) {
  const Object& object = inventory_.objects()[index];
  const auto checksums = object.checksums();
  reply.checksums.insert(reply.checksums.end(), checksums.begin(), checksums.end());
  const uint32_t copies = AppendPlacements(object, true, reply.nodes, reply.placements);
  const uint64_t part = object.part_bytes();
  const uint64_t stripe = StripeBytes(object.size_bytes, part, options_.stripe_bytes);
  return {true,  object.head().has_checksums, object.size_bytes, part, stripe, object.generation,
          copies};
}

uint32_t MasterCore::AppendPlacements(const Object& object, bool readable_only,
                                      std::vector<NodeAddress>& nodes,
                                      std::vector<Placement>& placements) {
  uint32_t count = 0;
  for (size_t at = 0; at < object.copy_count; ++at) {
    if (readable_only && !inventory_.IsReadable(object, at)) continue;
    for (const CopyExtent& extent : object.copy(at)) {
      NodeRecord& node = inventory_.nodes()[extent.node];
      if (extent.is_void()) {  // its node was lost while it is being written
        nodes.push_back({});
        placements.push_back({static_cast<uint32_t>(nodes.size() - 1), 0});
        continue;
      }
      if (node.answer != last_answer_) {
        node.answer = last_answer_;
        node.answer_index = static_cast<uint32_t>(nodes.size());
        nodes.push_back({node.id, node.endpoint});
      }
      placements.push_back({node.answer_index, node.allocator->OffsetOf(extent.block)});
    }
    ++count;
  }
  return count;
}

uint64_t MasterCore::AddLease(const Lookup& event, double now_s) {
  for (const uint32_t index : found_) {
    inventory_.Use(index);
    upkeep_.LookedUp(index, now_s);
    inventory_.Hold(index);
  }
  const uint64_t id = ++last_lease_;
  Lease& lease = leases_[id];
  lease.session = event.session;
  lease.is_pin = event.is_pin;
  lease.end_s = now_s + options_.lease_s;
  lease.objects = found_;
  Session& session = sessions_.at(event.session);
  session.leases.insert(id);
  if (event.is_pin) {
    session.pins.insert(id);
  } else {
    lease.by_end = leases_by_end_.insert(leases_by_end_.end(), id);
  }
  session.has_pinned = session.has_pinned || event.is_pin;
  return id;
}

// Objects return in reverse order, so that of a chain the end is evicted before the beginning.
void MasterCore::EndLease(uint64_t id) {
  const auto found = leases_.find(id);
  MC_CHECK(found != leases_.end(), "lease %llu", static_cast<unsigned long long>(id));
  const Lease lease = std::move(found->second);
  if (!lease.is_pin) leases_by_end_.erase(lease.by_end);
  leases_.erase(found);
  for (size_t at = lease.objects.size(); at-- > 0;) inventory_.Unhold(lease.objects[at]);
}

// A pin whose session is gone holds what it held until each node with a part of it has fenced the
// peer, which may still look at it.
void MasterCore::Orphan(uint64_t id, uint64_t peer_id) {
  Lease& lease = leases_.at(id);
  lease.session = 0;
  std::unordered_set<uint32_t> slots;
  for (const uint32_t index : lease.objects) {
    for (const CopyExtent& extent : inventory_.objects()[index].extents()) {
      if (!extent.is_void() && inventory_.nodes()[extent.node].is_there()) {
        slots.insert(extent.node);
      }
    }
  }
  lease.fences = static_cast<uint32_t>(slots.size());
  if (slots.empty()) return EndLease(id);
  fenced_peers_.Add(peer_id);
  for (const uint32_t slot : slots) {
    auto& quarantine = inventory_.nodes()[slot].quarantine;
    inventory_.counters().fences += !quarantine.contains(peer_id);
    quarantine[peer_id].pins.push_back(id);
  }
}

void MasterCore::Step(const Release& event, double now_s) {
  now_s = Advance(now_s);
  Session* session = Known(event.session, now_s);
  if (session != nullptr) EndLeases(*session, event.leases);
}

void MasterCore::EndLeases(Session& session, std::span<const uint64_t> leases) {
  for (const uint64_t lease : leases) {
    if (session.leases.erase(lease) == 0) continue;
    session.pins.erase(lease);
    ended_leases_.push_back(lease);
  }
  if (!leases.empty()) Work(settle_steps());
}

// Of very many some are left to the next heartbeat.
void MasterCore::EndLostPins(Session& session, const Heartbeat& event) {
  const std::unordered_set<uint64_t> held(event.pins.begin(), event.pins.end());
  std::vector<uint64_t> lost;
  auto pin = session.pins.upper_bound(event.pins_after);
  for (; pin != session.pins.end() && *pin <= event.pins_upto; ++pin) {
    if (!held.contains(*pin)) lost.push_back(*pin);
    if (lost.size() == kMaxBatch) break;
  }
  EndLeases(session, lost);
}

std::vector<bool> MasterCore::Exists(std::span<const std::string_view> keys) {
  Near(keys);
  std::vector<bool> there(keys.size());
  for (size_t at = 0; at < keys.size(); ++at) {
    there[at] = FindReadable(keys[at], hashes_[at]) != kNoIndex;
  }
  return there;
}

uint64_t MasterCore::MatchPrefix(std::span<const std::string_view> keys) {
  Near(keys);
  size_t at = 0;
  while (at < keys.size() && FindReadable(keys[at], hashes_[at]) != kNoIndex) ++at;
  return at;
}

// An object that is being written cannot be removed: its writer holds the key.
std::vector<bool> MasterCore::Remove(std::span<const std::string_view> keys) {
  inventory_.BeginStep();
  Near(keys);
  std::vector<bool> removed(keys.size());
  for (size_t at = 0; at < keys.size(); ++at) {
    const uint32_t index = inventory_.Find(keys[at], static_cast<uint32_t>(hashes_[at] >> 32));
    if (index == kNoIndex) continue;
    if (inventory_.objects()[index].state != ObjectState::kCommitted) continue;
    inventory_.Remove(index, Cause::kGone);
    removed[at] = true;
  }
  Work(settle_steps());
  return removed;
}

void MasterCore::ReportCorrupt(std::string_view key, uint64_t generation, NodeId node) {
  const uint32_t index = inventory_.Find(key);
  if (index == kNoIndex) return;
  const Object& object = inventory_.objects()[index];
  if (object.generation != generation || object.state != ObjectState::kCommitted) return;
  const std::set<NodeId> nodes{node};
  for (size_t at = object.copy_count; at-- > 0;) {
    if (node != 0 && !IsOnOne(object.copy(at), nodes)) continue;
    if (object.copy(at)[0].is_retired) continue;
    ++inventory_.counters().corrupt;
    inventory_.RetireCopy(index, at);
    if (inventory_.objects()[index].state != ObjectState::kCommitted) break;
  }
  Work(settle_steps());
}

}  // namespace mooncake::store
