// Sessions, time, and what goes on in slices. Puts, lookups, listing and nodes have files of their
// own.
#include "store/master_core.h"

#include <algorithm>

#include "base/check.h"

namespace mooncake::store {
namespace {

constexpr double kLongestPin_s = 1e9;

}  // namespace

Status Validate(const MasterOptions& options) {
  const auto eviction = MakeEviction(options.eviction);
  if (!eviction.ok()) return eviction.status();
  const auto admission = MakeAdmission(options.admission, options.admission_options);
  if (!admission.ok()) return admission.status();
  const auto placement = Placer::Make(options.placement, options.seed);
  if (!placement.ok()) return placement.status();
  if (options.stripe_bytes == 0 || options.step_evictions == 0) {
    return {Code::kInvalidArgument, "stripe_bytes or step_evictions is 0; they must be at least 1"};
  }
  const bool is_sane = options.hot_gets_per_s >= 0 && options.heat_half_life_s > 0 &&
                       options.hot_replicas >= 1 && options.hot_replicas <= kMaxReplicas;
  if (is_sane) return Status::Ok();
  return {Code::kInvalidArgument,
          "hot_gets_per_s must not be negative, heat_half_life_s must be more than 0, and "
          "hot_replicas from 1 to 16"};
}

MasterCore::MasterCore(const MasterOptions& options)
    : options_(options),
      inventory_(options),
      jobs_(inventory_, options.stripe_bytes),
      tasks_(inventory_, jobs_),
      upkeep_(inventory_, jobs_, options) {
  auto admission = MakeAdmission(options.admission, options.admission_options);
  MC_CHECK(admission.ok(), "%s", admission.status().message().c_str());
  admission_ = std::move(admission).value();
}

// Returns the time less the time that the master itself stood still, never going back.
double MasterCore::Advance(double now_s) {
  if (last_s_ < 0) last_s_ = now_s;
  if (now_s - last_s_ > kStall_s) stalled_s_ += now_s - last_s_;
  last_s_ = std::max(last_s_, now_s);
  now_s_ = last_s_ - stalled_s_;
  inventory_.BeginStep();
  inventory_.nodes().EndDoubts(now_s_);
  return now_s_;
}

MasterCore::Session* MasterCore::Known(SessionId session, double now_s) {
  const auto found = sessions_.find(session);
  if (found == sessions_.end()) return nullptr;
  found->second.seen_s = now_s;
  return &found->second;
}

Result<HelloReply> MasterCore::Step(const Hello& event, double now_s) {
  now_s = Advance(now_s);
  EndSession(event.previous);
  Work(settle_steps());
  if (sessions_.size() >= options_.max_sessions) {
    return Status(Code::kUnavailable, "it has as many clients as it takes; try again later");
  }
  HelloReply reply{false, event.session, options_.epoch, options_.client_ttl_s, options_.lease_s};
  // Id 0 names nobody, so that no node could fence it.
  reply.is_fenced = event.peer_id == 0 || fenced_peers_.Contains(event.peer_id);
  if (reply.is_fenced) return reply;
  Session& session = sessions_[event.session];
  session.peer_id = event.peer_id;
  session.puts.seed = options_.seed;
  if (event.host_id.size() <= kMaxNameBytes) session.host_id = event.host_id;
  session.seen_s = now_s;
  return reply;
}

HeartbeatReply MasterCore::Step(const Heartbeat& event, double now_s) {
  now_s = Advance(now_s);
  Session* session = Known(event.session, now_s);
  HeartbeatReply reply{session != nullptr, options_.epoch, {}, last_lease_};
  if (session == nullptr) return reply;
  for (const uint64_t id : event.leases) {
    if (!session->leases.contains(id)) {
      reply.ended.push_back(id);
      continue;
    }
    Lease& lease = leases_.at(id);
    if (lease.is_pin) continue;
    lease.end_s = now_s + options_.lease_s;
    leases_by_end_.splice(leases_by_end_.end(), leases_by_end_, lease.by_end);
  }
  EndLostPins(*session, event);
  return reply;
}

void MasterCore::Goodbye(SessionId session, double now_s) {
  Advance(now_s);
  EndSession(session);
  Work(settle_steps());
}

// What it was writing is quarantined: it may still be alive and writing.
void MasterCore::EndSession(SessionId id) {
  const auto found = sessions_.find(id);
  if (found == sessions_.end()) return;
  Session& session = found->second;
  ended_.push_back({session.peer_id, std::move(session.puts), 0, std::move(session.leases)});
  const bool is_dirty = ended_.back().puts.table.size() > 0 || session.has_pinned;
  if (is_dirty) fenced_peers_.Add(session.peer_id);
  sessions_.erase(found);
}

void MasterCore::EndSome(Ended& ended, int& steps) {
  while (steps > 0) {
    const PutSlot* put = ended.puts.table.Next(ended.cursor);
    if (put == nullptr) break;
    const uint32_t index = put->number - 1;
    const Object& object = inventory_.objects()[index];
    steps -= 1 + object.copy_count * object.head().stripes;
    while (object.copy_count > 0) {
      inventory_.DropCopy(index, object.copy_count - 1, &ended.peer_id);
    }
    EndWriting(index);
  }
  while (steps > 0 && !ended.leases.empty()) {
    const uint64_t lease = *ended.leases.begin();
    ended.leases.erase(ended.leases.begin());
    const auto found = leases_.find(lease);
    if (found == leases_.end()) continue;
    steps -= 1 + static_cast<int>(found->second.objects.size());
    found->second.is_pin ? Orphan(lease, ended.peer_id) : EndLease(lease);
  }
}

void MasterCore::EndOverdue(int& steps) {
  while (steps > 0 && !leases_by_end_.empty()) {
    const uint64_t id = leases_by_end_.front();
    const Lease& lease = leases_.at(id);
    if (lease.end_s >= now_s_) break;
    steps -= 1 + static_cast<int>(lease.objects.size());
    const auto session = sessions_.find(lease.session);
    if (session != sessions_.end()) session->second.leases.erase(id);
    EndLease(id);
  }
  for (; steps > 0 && !soft_pins_.empty() && soft_pins_.begin()->first < now_s_; --steps) {
    const uint32_t index = soft_pins_.begin()->second;
    const uint64_t generation = ForgetSoftPin(index);
    const Object& object = inventory_.objects()[index];
    const bool is_there = object.generation == generation && object.data != nullptr;
    if (is_there && object.pin == Pin::kSoft) inventory_.SetPin(index, Pin::kNone);
  }
}

// Nobody can write there yet: the put was not granted. It begins anew if it asks once more.
void MasterCore::GiveBackForgotten(int& steps) {
  for (; steps > 0 && !asked_.empty() && asked_.front().at_s + options_.lease_s < now_s_; --steps) {
    const Asked asked = asked_.front();
    asked_.pop_front();
    const auto found = making_room_.find(asked.index);
    if (found == making_room_.end() ||
        inventory_.objects()[asked.index].generation != asked.generation) {
      continue;
    }
    Making& making = found->second;
    if (making.asked_s > asked.at_s) {
      asked_.push_back({making.asked_s, asked.index, asked.generation});
      continue;
    }
    steps -= static_cast<int>(making.room.extents.size());
    making.is_forgotten = true;
    inventory_.GiveBack(making.room);
    making.room.Restart();
  }
}

void MasterCore::PinFor(uint32_t index, double duration_s) {
  const double end_s = now_s_ + std::min(duration_s, kLongestPin_s);
  (void)ForgetSoftPin(index);
  const uint64_t generation = inventory_.objects()[index].generation;
  soft_pin_of_.Insert({end_s, generation, HashIndex(index), index + 1});
  soft_pins_.emplace(end_s, index);
}

// Returns the generation that it was of; 0: there is none.
uint64_t MasterCore::ForgetSoftPin(uint32_t index) {
  const auto is_its = [index](const SoftPin& pin) { return pin.number == index + 1; };
  const SoftPin* found = soft_pin_of_.Find(HashIndex(index), is_its);
  if (found == nullptr) return 0;
  const SoftPin pin = *found;
  soft_pins_.erase({pin.end_s, index});
  soft_pin_of_.Erase(pin.hash, is_its);
  return pin.generation;
}

void MasterCore::Work(int steps) {
  inventory_.Work(steps);
  while (steps > 0 && !ended_.empty()) {
    EndSome(ended_.front(), steps);
    if (steps > 0) ended_.pop_front();
  }
  for (; steps > 0 && !ended_leases_.empty(); ended_leases_.pop_front()) {
    const auto found = leases_.find(ended_leases_.front());
    if (found == leases_.end()) continue;
    steps -= 1 + static_cast<int>(found->second.objects.size());
    EndLease(ended_leases_.front());
  }
  GiveBackForgotten(steps);
  EndOverdue(steps);
  if (steps > 0) WorkOnCopies(steps);
}

bool MasterCore::has_background() const {
  if (inventory_.has_work() || !ended_.empty() || !ended_leases_.empty()) return true;
  if (jobs_.has_work() || tasks_.has_work(now_s_) || upkeep_.has_work()) return true;
  if (inventory_.nodes().has_opened()) return true;
  if (!soft_pins_.empty() && soft_pins_.begin()->first < now_s_) return true;
  if (!asked_.empty() && asked_.front().at_s + options_.lease_s < now_s_) return true;
  return !leases_by_end_.empty() && leases_.at(leases_by_end_.front()).end_s < now_s_;
}

void MasterCore::RunSlice(double now_s) {
  Advance(now_s);
  Work(slice_steps());
}

void MasterCore::Tick(double now_s) {
  now_s = Advance(now_s);
  std::vector<SessionId> silent;
  for (const auto& [id, session] : sessions_) {
    if (now_s - session.seen_s > options_.client_ttl_s) silent.push_back(id);
  }
  inventory_.counters().expired_sessions += silent.size();
  for (const SessionId id : silent) EndSession(id);
  TickNodes(now_s);
  upkeep_.Tick(now_s);
  Work(slice_steps());
}

Space MasterCore::SpaceOf(bool open_only) const {
  Space space;
  const NodeTable& nodes = inventory_.nodes();
  for (uint32_t slot = 0; slot < nodes.size(); ++slot) {
    const NodeRecord& node = nodes[slot];
    const NodeView& view = nodes.views()[slot];
    if (!node.is_there() || (open_only && !view.is_open)) continue;
    const uint64_t used = node.allocator->used_bytes();
    space.capacity += node.allocator->capacity_bytes();
    space.used += used;
    space.evictable += view.evictable_bytes;
    space.quarantined += node.quarantined_bytes;
    space.pinned += used - view.evictable_bytes - node.quarantined_bytes;
    space.largest_free_extent =
        std::max(space.largest_free_extent, node.allocator->LargestFreeExtent());
  }
  return space;
}

Stats MasterCore::Report() const {
  Stats stats;
  stats.epoch = options_.epoch;
  stats.clients = sessions_.size();
  stats.objects = inventory_.committed();
  stats.writing = writing_;
  stats.leases = leases_.size();
  stats.groups = inventory_.groups().count();
  stats.soft_pinned = inventory_.pinned_bytes(Pin::kSoft);
  stats.hard_pinned = inventory_.pinned_bytes(Pin::kHard);
  stats.tasks = tasks_.running();
  stats.copy_orders = jobs_.orders();
  stats.hot_objects = upkeep_.hot_objects();
  stats.space = SpaceOf(false);
  stats.counters = inventory_.counters();
  const NodeTable& nodes = inventory_.nodes();
  uint64_t free = 0, largest = 0;
  for (uint32_t slot = 0; slot < nodes.size(); ++slot) {
    const NodeRecord& node = nodes[slot];
    if (!node.is_there()) continue;
    free += node.allocator->free_bytes();
    largest += node.allocator->LargestFreeExtent();
    stats.nodes.push_back({node.id, node.endpoint, node.host_id, node.name, node.domain,
                           node.allocator->capacity_bytes(), node.allocator->used_bytes(),
                           node.quarantined_bytes, node.state});
  }
  if (free > 0) stats.fragmentation = 1 - static_cast<double>(largest) / static_cast<double>(free);
  return stats;
}

}  // namespace mooncake::store
