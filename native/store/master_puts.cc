// Puts: from their start to their end or abort.
#include <algorithm>

#include "base/check.h"
#include "store/master_core.h"

namespace mooncake::store {
namespace {

// How long placement leaves a node for last to which a write has failed. Who starts its put again
// starts it elsewhere; and a client that alone is cut off from a node that is well does not keep
// others from it for long. A node that is dead is soon named again, until its silence tells.
constexpr double kDoubt_s = 2;
constexpr size_t kNear = 32;  // items that wait together; more would push each other out again

bool IsValid(const PutStart& event, const PutStart::Item& item, uint64_t limit_bytes) {
  if (item.key.size() > kMaxKeyBytes || item.group.size() > kMaxKeyBytes) return false;
  if (item.size_bytes > kMaxObjectBytes || item.options >= event.options.size()) return false;
  if (ChunkCount(item.size_bytes, item.part_bytes) > MostChunks(item.size_bytes)) return false;
  const PutOptions& options = event.options[item.options];
  const uint64_t stripe = StripeBytes(item.size_bytes, item.part_bytes, limit_bytes);
  return options.replicas >= 1 && options.replicas <= kMaxReplicas && options.pin <= Pin::kHard &&
         options.preferred.size() <= kMaxPreferred &&
         StripeCount(item.size_bytes, stripe) * options.replicas <= kMaxExtents;
}

PutStartReply::Item NoRoom(const Wanted& wanted) {
  return {PutOutcome::kOutOfSpace, 0, wanted.stripes > 1 ? wanted.stripe_bytes : 0};
}

}  // namespace

uint32_t MasterCore::Puts::Find(uint64_t put_id) const {
  const PutSlot* put =
      table.Find(HashOf(put_id), [put_id](const PutSlot& each) { return each.put_id == put_id; });
  return put != nullptr ? put->number - 1 : kNoIndex;
}

PutStartReply MasterCore::Step(const PutStart& event, double now_s) {
  now_s = Advance(now_s);
  Session* owner = Known(event.session, now_s);
  PutStartReply reply;
  if (owner == nullptr) return reply;
  reply.is_known = true;
  reply.peer_id = owner->peer_id;
  reply.items.reserve(event.items.size());
  reply.placements.reserve(event.items.size());
  ++last_answer_;
  bool is_short = false;
  const std::span<const PutStart::Item> items(event.items);
  for (size_t at = 0; at < items.size(); ++at) {
    if (at % kNear == 0) Near(items.subspan(at, std::min(kNear, items.size() - at)));
    reply.items.push_back(StartPut(event, items[at], hashes_[at % kNear], *owner, reply));
    is_short = is_short || reply.items.back().outcome == PutOutcome::kOutOfSpace;
  }
  Work(settle_steps());  // whose group died by an eviction goes now
  if (is_short) reply.space = SpaceOf(true);
  return reply;
}

// Hashes the next keys, and brings near what their puts will look at.
void MasterCore::Near(std::span<const PutStart::Item> items) {
  const ObjectTable& objects = inventory_.objects();
  hashes_.clear();
  uint64_t bytes = 0;
  for (const auto& item : items) {
    bytes += kHeaderBytes + std::min(item.size_bytes, kMaxObjectBytes);
    hashes_.push_back(HashKey(item.key, options_.seed));
    objects.PrefetchSlot(static_cast<uint32_t>(hashes_.back() >> 32));
  }
  inventory_.NearVictims(items.size(), bytes);
  for (const uint64_t hash : hashes_) objects.PrefetchRecord(static_cast<uint32_t>(hash >> 32));
}

PutStartReply::Item MasterCore::StartPut(const PutStart& event, const PutStart::Item& item,
                                         uint64_t hash, Session& owner, PutStartReply& reply) {
  if (!IsValid(event, item, options_.stripe_bytes)) return {PutOutcome::kInvalid};
  if (owner.early_aborts.Contains(item.put_id)) return {PutOutcome::kAborted};
  if (const uint32_t mine = owner.puts.Find(item.put_id); mine != kNoIndex) {
    return Continue(event, item, mine, owner, reply);
  }
  if (owner.puts.table.size() >= kMaxOpenPuts) return {PutOutcome::kInvalid};
  Counters& counters = inventory_.counters();
  const PutOptions& options = event.options[item.options];
  bool takes_key = true;
  const PutOutcome claim = Claim(item, hash, options.is_upsert, takes_key);
  if (claim != PutOutcome::kStarted) return {claim};
  if (!admission_->Admit(hash, item.size_bytes, now_s_)) {
    ++counters.not_admitted;
    return {PutOutcome::kNotAdmitted};
  }
  if (options.is_strict) {
    const uint32_t domains = inventory_.CountDomains();
    if (domains < options.replicas) return {PutOutcome::kTooFewNodes, 0, 0, domains};
  }
  room_.Restart();
  const Wanted wanted = WantedOf(event, item, owner);
  const RoomOutcome outcome =
      inventory_.may_place() ? inventory_.Place(wanted, room_) : RoomOutcome::kMaking;
  if (outcome == RoomOutcome::kFull) {
    ++counters.out_of_space;
    return NoRoom(wanted);
  }
  Room later;
  if (outcome == RoomOutcome::kMaking) later = std::exchange(room_, {});
  const uint32_t index = AddPut(event, item, wanted.stripes, room_);
  if (takes_key) inventory_.objects().TakeKey(index, static_cast<uint32_t>(hash >> 32));
  owner.puts.Insert(item.put_id, index);
  ++writing_;
  if (outcome == RoomOutcome::kDone) return Grant(index, reply);
  ++counters.making_room;
  making_room_.emplace(index, Making{std::move(later), now_s_});
  asked_.push_back({now_s_, index, last_generation_});
  return {PutOutcome::kMakingRoom};
}

// Whether a put of the key may start. One that nobody can read now is replaced at the end.
PutOutcome MasterCore::Claim(const PutStart::Item& item, uint64_t hash, bool is_upsert,
                             bool& takes_key) {
  takes_key = !is_upsert;
  const uint32_t there = inventory_.objects().Find(item.key, static_cast<uint32_t>(hash >> 32));
  if (there == kNoIndex || is_upsert) return PutOutcome::kStarted;
  const Object& object = inventory_.objects()[there];
  if (object.state == ObjectState::kWriting) return PutOutcome::kBusy;
  if (inventory_.IsDying(object)) {
    inventory_.Remove(there, Cause::kGone);
    return PutOutcome::kStarted;
  }
  takes_key = false;
  for (size_t copy = 0; copy < object.copy_count; ++copy) {
    if (inventory_.IsReadable(object, copy)) return PutOutcome::kExists;
  }
  return PutOutcome::kStarted;
}

Wanted MasterCore::WantedOf(const PutStart& event, const PutStart::Item& item,
                            const Session& owner) const {
  const PutOptions& options = event.options[item.options];
  Wanted wanted;
  wanted.size_bytes = item.size_bytes;
  wanted.stripe_bytes = StripeBytes(item.size_bytes, item.part_bytes, options_.stripe_bytes);
  wanted.stripes = static_cast<uint16_t>(StripeCount(item.size_bytes, wanted.stripe_bytes));
  wanted.copies = static_cast<uint8_t>(options.replicas);
  wanted.is_strict = options.is_strict;
  wanted.host = inventory_.nodes().HostOf(owner.host_id);
  wanted.preferred = options.preferred;
  return wanted;
}

uint32_t MasterCore::AddPut(const PutStart& event, const PutStart::Item& item, uint16_t stripes,
                            Room& room) {
  const PutOptions& options = event.options[item.options];
  const uint32_t index = inventory_.Create(
      {item.key, item.size_bytes, item.part_bytes, options.has_checksums, stripes}, room);
  Object& object = inventory_.objects()[index];
  object.generation = ++last_generation_;
  object.wanted = static_cast<uint8_t>(options.replicas);
  object.is_upsert = options.is_upsert;
  object.depth = item.depth;
  if (options.pin != Pin::kNone) inventory_.SetPin(index, options.pin);
  if (options.pin == Pin::kSoft) PinFor(index, options.soft_pin_s);
  if (!item.parent.empty()) {
    const uint32_t parent = inventory_.Find(item.parent);
    if (parent != kNoIndex) inventory_.LinkToParent(index, parent);
  }
  if (!item.group.empty()) inventory_.JoinGroup(index, item.group, item.group_size);
  return index;
}

// A start that was said before: its answer was lost, or it waits for room.
PutStartReply::Item MasterCore::Continue(const PutStart& event, const PutStart::Item& item,
                                         uint32_t index, Session& owner, PutStartReply& reply) {
  const Object& object = inventory_.objects()[index];
  const bool is_same = object.key() == item.key && object.size_bytes == item.size_bytes &&
                       object.part_bytes() == item.part_bytes;
  if (!is_same) return {PutOutcome::kInvalid};
  const auto making = making_room_.find(index);
  if (making == making_room_.end()) return Grant(index, reply);
  making->second.asked_s = now_s_;
  if (std::exchange(making->second.is_forgotten, false)) {
    asked_.push_back({now_s_, index, object.generation});
  }
  if (!inventory_.may_place()) return {PutOutcome::kMakingRoom};
  const Wanted wanted = WantedOf(event, item, owner);
  const RoomOutcome outcome = inventory_.Place(wanted, making->second.room);
  if (outcome == RoomOutcome::kMaking) return {PutOutcome::kMakingRoom};
  if (outcome == RoomOutcome::kDone) {
    inventory_.TakeOver(index, making->second.room);
    making_room_.erase(making);
    return Grant(index, reply);
  }
  ++inventory_.counters().out_of_space;
  owner.puts.Erase(item.put_id);
  EndWriting(index);
  return NoRoom(wanted);
}

PutStartReply::Item MasterCore::Grant(uint32_t index, PutStartReply& reply) {
  const Object& object = inventory_.objects()[index];
  const uint32_t copies = AppendPlacements(object, false, reply.nodes, reply.placements);
  const uint64_t stripe =
      StripeBytes(object.size_bytes, object.part_bytes(), options_.stripe_bytes);
  return {PutOutcome::kStarted, object.generation, stripe, copies};
}

// Takes an object that was being written away, with the room that was being made for it.
void MasterCore::EndWriting(uint32_t index) {
  --writing_;
  if (const auto making = making_room_.find(index); making != making_room_.end()) {
    inventory_.GiveBack(making->second.room);
    making_room_.erase(making);
  }
  inventory_.Remove(index, Cause::kGone);
}

PutEndReply MasterCore::Step(const PutEnd& event, double now_s) {
  now_s = Advance(now_s);
  Session* owner = Known(event.session, now_s);
  if (owner == nullptr) return {};
  PutEndReply reply{true, {}};
  reply.outcomes.reserve(event.items.size());
  std::span<const uint32_t> checksums(event.checksums);
  const std::span<const PutEnd::Item> items(event.items);
  for (size_t at = 0; at < items.size(); ++at) {
    if (at % kNear == 0) Near(items.subspan(at, std::min(kNear, items.size() - at)), *owner);
    const auto own = checksums.first(std::min<size_t>(items[at].checksums, checksums.size()));
    checksums = checksums.subspan(own.size());
    reply.outcomes.push_back(EndPut(*owner, items[at], own));
  }
  Work(settle_steps());
  return reply;
}

void MasterCore::Near(std::span<const PutEnd::Item> items, const Session& owner) {
  const ObjectTable& objects = inventory_.objects();
  found_.clear();
  for (const auto& item : items) {
    const uint32_t index = owner.puts.Find(item.put_id);
    if (index == kNoIndex) continue;
    found_.push_back(index);
    __builtin_prefetch(&objects[index]);
  }
  for (const uint32_t index : found_) __builtin_prefetch(objects[index].data);
}

EndOutcome MasterCore::EndPut(Session& owner, const PutEnd::Item& item,
                              std::span<const uint32_t> checksums) {
  const uint32_t index = owner.puts.Find(item.put_id);
  if (index == kNoIndex) {
    const uint32_t there = inventory_.Find(item.key);
    const bool is_done = there != kNoIndex &&
                         inventory_.objects()[there].generation == item.generation &&
                         inventory_.objects()[there].state == ObjectState::kCommitted;
    return is_done ? EndOutcome::kDone : EndOutcome::kUnknown;
  }
  Object& object = inventory_.objects()[index];
  const auto own = object.checksums();
  const bool fits = object.generation == item.generation && object.key() == item.key &&
                    checksums.size() == own.size() &&
                    (making_room_.empty() || !making_room_.contains(index));
  if (!fits) return EndOutcome::kInvalid;
  std::ranges::copy(checksums, own.begin());
  owner.puts.Erase(item.put_id);
  Doubt(object, item.failed);
  DropLost(index, item, owner.peer_id);
  return Land(index);
}

// Makes a written object visible, unless there is none left or another has come before it.
EndOutcome MasterCore::Land(uint32_t index) {
  const Object& object = inventory_.objects()[index];
  Counters& counters = inventory_.counters();
  const bool has_group_gone = object.is_doomed || inventory_.IsDying(object);
  if (object.copy_count == 0 || has_group_gone) {
    ++counters.aborts;
    EndWriting(index);
    return has_group_gone ? EndOutcome::kGroupGone : EndOutcome::kUnknown;
  }
  bool is_late = object.is_superseded;
  if (!object.has_key && !object.is_upsert && !is_late) {
    const uint32_t there = inventory_.Find(object.key());
    is_late = there != kNoIndex && inventory_.IsReadable(inventory_.objects()[there]);
  }
  if (is_late) {
    ++counters.superseded;
    EndWriting(index);
    return EndOutcome::kSuperseded;
  }
  if (!object.has_key) inventory_.Replace(index);
  inventory_.Commit(index);
  --writing_;
  ++counters.puts;
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
  const uint32_t index = owner.puts.Find(item.put_id);
  if (index == kNoIndex) {
    // Its start may still be under way on another connection, or the abort came twice. A mark that
    // is pushed out costs space until the session ends, no more.
    owner.early_aborts.Add(item.put_id);
    return EndOutcome::kUnknown;
  }
  owner.puts.Erase(item.put_id);
  ++inventory_.counters().aborts;
  const Object& object = inventory_.objects()[index];
  Doubt(object, item.failed);
  const std::set<NodeId> dirty(item.dirty.begin(), item.dirty.end());
  for (size_t at = object.copy_count; at-- > 0;) {
    if (!IsOnOne(object.copy(at), dirty)) continue;
    inventory_.DropCopy(index, at, &owner.peer_id);
    fenced_peers_.Add(owner.peer_id);
  }
  EndWriting(index);
  return EndOutcome::kDone;
}

// Of the nodes that the put was granted, and no others: it costs whoever raises a doubt a put.
void MasterCore::Doubt(const Object& object, std::span<const NodeId> failed) {
  if (failed.empty()) return;
  const std::set<NodeId> those(failed.begin(), failed.end());
  NodeTable& nodes = inventory_.nodes();
  for (const CopyExtent& extent : object.extents()) {
    if (extent.is_void()) continue;
    if (those.contains(nodes[extent.node].id)) nodes.Doubt(extent.node, now_s_ + kDoubt_s);
  }
}

// A copy that has lost a stripe is lost.
void MasterCore::DropLost(uint32_t index, const PutEnd::Item& item, uint64_t peer_id) {
  const Object& object = inventory_.objects()[index];
  const std::set<NodeId> dirty(item.dirty.begin(), item.dirty.end());
  for (size_t at = object.copy_count; at-- > 0;) {
    const auto copy = object.copy(at);
    const bool is_lost = std::ranges::find(item.lost, at) != item.lost.end() ||
                         std::ranges::any_of(copy, &CopyExtent::is_void);
    if (!is_lost) continue;
    const bool is_dirty = IsOnOne(copy, dirty);
    if (is_dirty) fenced_peers_.Add(peer_id);
    inventory_.DropCopy(index, at, is_dirty ? &peer_id : nullptr);
  }
}

bool MasterCore::IsOnOne(std::span<const CopyExtent> copy, const std::set<NodeId>& nodes) const {
  return !nodes.empty() && std::ranges::any_of(copy, [&](const CopyExtent& extent) {
    return !extent.is_void() && nodes.contains(inventory_.nodes()[extent.node].id);
  });
}

}  // namespace mooncake::store
