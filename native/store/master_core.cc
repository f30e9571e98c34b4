// Sessions, puts, lookups and leases. Space and nodes are in master_space.cc.
#include "store/master_core.h"

#include <algorithm>

#include "base/check.h"

namespace mooncake::store {
namespace {

constexpr size_t kEarlyAborts = 2 * kMaxBatch;  // marks a session
constexpr uint64_t kMaxObjectBytes = 1ull << 48;
constexpr uint64_t kMaxAnswerBytes = 48u << 20;  // with room for the frame

bool IsValid(const PutStart& event, const PutStart::Item& item) {
  return item.key.size() <= kMaxKeyBytes && item.size_bytes <= kMaxObjectBytes &&
         ChunkCount(item.size_bytes, item.part_bytes) <= kMaxChunks &&
         item.options < event.options.size() && event.options[item.options].replicas >= 1 &&
         event.options[item.options].replicas <= kMaxReplicas;
}

uint64_t BytesOf(const LookupReply& reply) {
  return 48 * reply.items.size() + 4 * reply.checksums.size() + 12 * reply.placements.size() +
         (kMaxNameBytes + 16) * reply.nodes.size();
}

}  // namespace

// Returns the time less the time that the master itself stood still, never going back.
double MasterCore::Advance(double now_s) {
  if (last_s_ < 0) last_s_ = now_s;
  if (now_s - last_s_ > kStall_s) stalled_s_ += now_s - last_s_;
  last_s_ = std::max(last_s_, now_s);
  return last_s_ - stalled_s_;
}

MasterCore::Session* MasterCore::Known(SessionId session, double now_s) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return nullptr;
  found->second.seen_s = now_s;
  return &found->second;
}

HelloReply MasterCore::Step(const Hello& event, double now_s) {
  now_s = Advance(now_s);
  EndSession(event.previous);
  HelloReply reply{false, event.session, options_.epoch, options_.client_ttl_s, options_.lease_s};
  // Id 0 names nobody, so that no node could fence it.
  reply.is_fenced = event.peer_id == 0 || fenced_peers_.contains(event.peer_id);
  if (!reply.is_fenced) {
    Session& session = sessions_[event.session];
    session.peer_id = event.peer_id;
    session.seen_s = now_s;
  }
  return reply;
}

HeartbeatReply MasterCore::Step(const Heartbeat& event, double now_s) {
  now_s = Advance(now_s);
  const Session* session = Known(event.session, now_s);
  HeartbeatReply reply{session != nullptr, options_.epoch, {}};
  if (session == nullptr) return reply;
  for (const uint64_t id : event.leases) {
    if (session->leases.contains(id)) {
      Lease& lease = leases_.at(id);
      lease.end_s = now_s + options_.lease_s;
      leases_by_end_.splice(leases_by_end_.end(), leases_by_end_, lease.by_end);
    } else {
      reply.ended.push_back(id);
    }
  }
  return reply;
}

void MasterCore::Goodbye(SessionId session, double now_s) {
  Advance(now_s);
  EndSession(session);
}

// What it was writing is quarantined: it may still be alive and writing.
void MasterCore::EndSession(SessionId id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  Session session = std::move(found->second);
  sessions_.erase(found);
  for (const uint64_t lease : session.leases) EndLease(lease);
  for (const auto& [put_id, index] : session.puts) {
    while (objects_[index].copy_count > 0) ReleaseCopy(index, 0, &session.peer_id);
    RemoveObject(index);
  }
  writing_ -= session.puts.size();
}

PutStartReply MasterCore::Step(const PutStart& event, double now_s) {
  now_s = Advance(now_s);
  Session* owner = Known(event.session, now_s);
  PutStartReply reply;
  if (owner == nullptr) return reply;
  reply.is_known = true;
  reply.peer_id = owner->peer_id;
  bool is_short = false;
  for (const auto& item : event.items) {
    reply.items.push_back(StartPut(event, item, *owner, reply));
    is_short = is_short || reply.items.back().outcome == PutOutcome::kOutOfSpace;
  }
  if (is_short) reply.space = SpaceOf(true);
  return reply;
}

PutStartReply::Item MasterCore::StartPut(const PutStart& event, const PutStart::Item& item,
                                         Session& owner, PutStartReply& reply) {
  if (!IsValid(event, item)) return {PutOutcome::kInvalid};
  if (owner.early_aborts.contains(item.put_id)) return {PutOutcome::kAborted};
  if (const auto mine = owner.puts.find(item.put_id); mine != owner.puts.end()) {
    const bool is_same = objects_[mine->second].key() == item.key;  // said twice
    if (!is_same) return {PutOutcome::kInvalid};
    return Grant(mine->second, reply);
  }
  if (const uint32_t there = objects_.Find(item.key); there != kNoIndex) {
    const bool is_committed = objects_[there].state == ObjectState::kCommitted;
    return {is_committed ? PutOutcome::kExists : PutOutcome::kBusy};
  }
  const std::vector<Copy> copies =
      PlaceCopies(kHeaderBytes + item.size_bytes, event.options[item.options].replicas);
  if (copies.empty()) {
    ++counters_.out_of_space;
    return {PutOutcome::kOutOfSpace};
  }
  const uint32_t index = objects_.Add(item.key, copies);
  Object& object = objects_[index];
  object.generation = ++last_generation_;
  object.size_bytes = item.size_bytes;
  object.part_bytes = item.part_bytes;
  object.owner = event.session;
  object.put_id = item.put_id;
  Link(index);
  owner.puts.emplace(item.put_id, index);
  ++writing_;
  return Grant(index, reply);
}

PutStartReply::Item MasterCore::Grant(uint32_t index, PutStartReply& reply) const {
  const Object& object = objects_[index];
  const uint32_t copies = AppendPlacements(object, false, reply.nodes, reply.placements);
  return {PutOutcome::kStarted, object.generation, 0, copies};
}

PutEndReply MasterCore::Step(const PutEnd& event, double now_s) {
  now_s = Advance(now_s);
  Session* owner = Known(event.session, now_s);
  if (owner == nullptr) return {};
  PutEndReply reply{true, {}};
  std::span<const uint32_t> checksums(event.checksums);
  for (const auto& item : event.items) {
    reply.outcomes.push_back(EndPut(*owner, item, checksums));
  }
  return reply;
}

// Takes the item's own from the front of `checksums`.
EndOutcome MasterCore::EndPut(Session& owner, const PutEnd::Item& item,
                              std::span<const uint32_t>& checksums) {
  const auto put = owner.puts.find(item.put_id);
  if (put == owner.puts.end()) {
    const uint32_t there = objects_.Find(item.key);
    const bool is_done = there != kNoIndex && objects_[there].generation == item.generation &&
                         objects_[there].state == ObjectState::kCommitted;
    return is_done ? EndOutcome::kDone : EndOutcome::kUnknown;
  }
  const uint32_t index = put->second;
  Object& object = objects_[index];
  const uint64_t count = ChunkCount(object.size_bytes, object.part_bytes);
  const bool fits =
      object.generation == item.generation && object.key() == item.key && checksums.size() >= count;
  if (!fits) return EndOutcome::kInvalid;
  const auto own = checksums.first(count);
  checksums = checksums.subspan(count);
  DropLost(index, item, owner.peer_id);
  owner.puts.erase(put);
  --writing_;
  if (object.copy_count == 0) {
    ++counters_.aborts;
    RemoveObject(index);
    return EndOutcome::kUnknown;
  }
  Unlink(index);
  object.SetChecksums(own);
  object.state = ObjectState::kCommitted;
  object.owner = 0;
  Link(index);
  ++counters_.puts;
  return EndOutcome::kDone;
}

PutEndReply MasterCore::Step(const PutAbort& event, double now_s) {
  now_s = Advance(now_s);
  Session* owner = Known(event.session, now_s);
  if (owner == nullptr) return {};
  PutEndReply reply{true, {}};
  for (const auto& item : event.items) reply.outcomes.push_back(AbortPut(*owner, item));
  return reply;
}

EndOutcome MasterCore::AbortPut(Session& owner, const PutAbort::Item& item) {
  const auto put = owner.puts.find(item.put_id);
  if (put == owner.puts.end()) {
    // Its start may still be under way on another connection, or the abort came twice. A mark that
    // is pushed out costs space until the session ends, no more.
    MarkAborted(owner, item.put_id);
    return EndOutcome::kUnknown;
  }
  const uint32_t index = put->second;
  owner.puts.erase(put);
  --writing_;
  ++counters_.aborts;
  for (size_t at = objects_[index].copy_count; at-- > 0;) {
    const NodeId node = nodes_[objects_[index].copies()[at].node].id;
    if (std::ranges::find(item.dirty, node) != item.dirty.end()) {
      ReleaseCopy(index, at, &owner.peer_id);
    }
  }
  RemoveObject(index);
  return EndOutcome::kDone;
}

void MasterCore::MarkAborted(Session& owner, uint64_t put_id) {
  if (!owner.early_aborts.insert(put_id).second) return;
  owner.early_aborts_by_arrival.push_back(put_id);
  if (owner.early_aborts_by_arrival.size() <= kEarlyAborts) return;
  owner.early_aborts.erase(owner.early_aborts_by_arrival.front());
  owner.early_aborts_by_arrival.pop_front();
}

void MasterCore::DropLost(uint32_t index, const PutEnd::Item& item, uint64_t peer_id) {
  for (size_t at = objects_[index].copy_count; at-- > 0;) {
    if (std::ranges::find(item.lost, at) == item.lost.end()) continue;
    const NodeId node = nodes_[objects_[index].copies()[at].node].id;
    const bool is_dirty = std::ranges::find(item.dirty, node) != item.dirty.end();
    ReleaseCopy(index, at, is_dirty ? &peer_id : nullptr);
  }
}

LookupReply MasterCore::Step(const Lookup& event, double now_s) {
  now_s = Advance(now_s);
  LookupReply reply;
  if (Known(event.session, now_s) == nullptr) return reply;
  reply.is_known = true;
  std::vector<uint32_t> found;
  bool is_cut = false;
  for (const auto& key : event.keys) {
    const uint32_t index = is_cut ? kNoIndex : FindReadable(key);
    is_cut = is_cut || (event.stop_at_miss && index == kNoIndex);
    reply.items.push_back(index == kNoIndex ? LookupReply::Item{} : Describe(index, reply));
    if (index != kNoIndex) found.push_back(index);
    if (BytesOf(reply) > kMaxAnswerBytes) {
      reply = {};
      reply.is_known = reply.is_too_large = true;
      return reply;
    }
  }
  counters_.gets += event.keys.size();
  counters_.hits += found.size();
  counters_.misses += event.keys.size() - found.size();
  if (!found.empty()) reply.lease = AddLease(event.session, std::move(found), now_s);
  return reply;
}

LookupReply::Item MasterCore::Describe(uint32_t index, LookupReply& reply) const {
  const Object& object = objects_[index];
  const auto checksums = object.checksums();
  reply.checksums.insert(reply.checksums.end(), checksums.begin(), checksums.end());
  const uint32_t copies = AppendPlacements(object, true, reply.nodes, reply.placements);
  return {true, true, object.size_bytes, object.part_bytes, 0, object.generation, copies};
}

uint64_t MasterCore::AddLease(SessionId session, std::vector<uint32_t> objects, double now_s) {
  for (const uint32_t index : objects) Acquire(index);
  const uint64_t id = ++last_lease_;
  leases_by_end_.push_back(id);
  leases_[id] = {session, now_s + options_.lease_s, std::move(objects),
                 std::prev(leases_by_end_.end())};
  sessions_.at(session).leases.insert(id);
  return id;
}

// Objects return in reverse order, so that of a chain the end is evicted before the beginning.
void MasterCore::EndLease(uint64_t id) {
  const auto found = leases_.find(id);
  MC_CHECK(found != leases_.end(), "lease %llu", static_cast<unsigned long long>(id));
  const Lease lease = std::move(found->second);
  leases_by_end_.erase(lease.by_end);
  leases_.erase(found);
  for (auto index = lease.objects.rbegin(); index != lease.objects.rend(); ++index) Unlease(*index);
}

void MasterCore::Acquire(uint32_t index) {
  if (objects_[index].leases == 0) Unlink(index);
  if (objects_[index].leases++ == 0) Link(index);
}

void MasterCore::Unlease(uint32_t index) {
  Object& object = objects_[index];
  if (object.leases == 1) Unlink(index);
  if (--object.leases > 0) return;
  Link(index);
  if (object.state == ObjectState::kRemoved) FreeObject(index);
}

void MasterCore::Step(const Release& event, double now_s) {
  now_s = Advance(now_s);
  Session* session = Known(event.session, now_s);
  if (session == nullptr) return;
  for (const uint64_t lease : event.leases) {
    if (session->leases.erase(lease) > 0) EndLease(lease);
  }
}

bool MasterCore::IsReadable(const Object& object) const {
  return object.state == ObjectState::kCommitted &&
         std::any_of(object.copies().begin(), object.copies().end(), [this](const Copy& copy) {
           return nodes_[copy.node].state == NodeState::kOnline;
         });
}

uint32_t MasterCore::FindReadable(std::string_view key) const {
  const uint32_t index = objects_.Find(key);
  return index != kNoIndex && IsReadable(objects_[index]) ? index : kNoIndex;
}

std::vector<bool> MasterCore::Exists(std::span<const std::string_view> keys) const {
  std::vector<bool> there;
  there.reserve(keys.size());
  for (const auto& key : keys) there.push_back(FindReadable(key) != kNoIndex);
  return there;
}

uint64_t MasterCore::MatchPrefix(std::span<const std::string_view> keys) const {
  const auto end = std::find_if(keys.begin(), keys.end(), [this](std::string_view key) {
    return FindReadable(key) == kNoIndex;
  });
  return end - keys.begin();
}

// An object that is being written cannot be removed: its writer holds the key.
std::vector<bool> MasterCore::Remove(std::span<const std::string_view> keys) {
  std::vector<bool> removed;
  for (const auto& key : keys) {
    const uint32_t index = objects_.Find(key);
    const bool is_there = index != kNoIndex && objects_[index].state == ObjectState::kCommitted;
    if (is_there) RemoveObject(index);
    removed.push_back(is_there);
  }
  return removed;
}

void MasterCore::ReportCorrupt(std::string_view key, uint64_t generation) {
  const uint32_t index = objects_.Find(key);
  if (index == kNoIndex || objects_[index].generation != generation) return;
  if (objects_[index].state != ObjectState::kCommitted) return;
  ++counters_.corrupt;
  RemoveObject(index);
}

void MasterCore::Tick(double now_s) {
  now_s = Advance(now_s);
  std::vector<SessionId> silent;
  for (const auto& [id, session] : sessions_) {
    if (now_s - session.seen_s > options_.client_ttl_s) silent.push_back(id);
  }
  counters_.expired_sessions += silent.size();
  for (const SessionId id : silent) EndSession(id);
  while (!leases_by_end_.empty() && leases_.at(leases_by_end_.front()).end_s < now_s) {
    const uint64_t id = leases_by_end_.front();
    sessions_.at(leases_.at(id).session).leases.erase(id);
    EndLease(id);
  }
  TickNodes(now_s);
}

}  // namespace mooncake::store
