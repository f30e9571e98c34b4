#include "store/copy_jobs.h"

#include <algorithm>

#include "base/check.h"

namespace mooncake::store {
namespace {

// So many orders a node is given at once, and so many bytes; more wait, so that it never does.
constexpr size_t kOrdersAtNode = 16;
constexpr uint64_t kBytesAtNode = 64ull << 20;
constexpr size_t kJobsANode = 32;
constexpr uint32_t kMostAsks = 1000;  // for room, in a row, that evict nothing

}  // namespace

CopyJobs::CopyJobs(Inventory& inventory, uint64_t stripe_bytes)
    : inventory_(inventory), stripe_bytes_(stripe_bytes) {
  auto placer = Placer::Make("free-ratio-first", 0);
  MC_CHECK(placer.ok(), "%s", placer.status().message().c_str());
  placer_ = std::move(placer).value();
}

bool CopyJobs::is_full() const {
  return jobs_.size() >= kJobsANode * std::max<size_t>(inventory_.nodes().size(), 1);
}

size_t CopyJobs::LiveCopies(const Object& object) const {
  size_t live = 0;
  for (size_t copy = 0; copy < object.copy_count; ++copy) {
    const auto extents = object.copy(copy);
    live += !extents[0].is_retired && std::ranges::none_of(extents, [this](const auto& extent) {
      return extent.is_void() || inventory_.nodes()[extent.node].is_lost;
    });
  }
  return live;
}

CopyJobs::Outcome CopyJobs::Start(const Plan& plan) {
  const Object& object = inventory_.objects()[plan.object];
  if (!HasSource(object)) return Outcome::kNoSource;
  if (is_full() || IsCopied(plan.object)) return Outcome::kLater;
  Job job{.plan = plan, .generation = object.generation, .wanted = {}, .room = {}, .problem = {}};
  job.wanted.size_bytes = object.size_bytes;
  job.wanted.stripe_bytes = StripeBytes(object.size_bytes, object.part_bytes(), stripe_bytes_);
  job.wanted.stripes = object.head().stripes;
  TakeDomains(job);
  if (!HasDomain(job)) return Outcome::kNoDomain;
  inventory_.Hold(plan.object);
  const RoomOutcome outcome = ReserveAll(job);
  if (outcome == RoomOutcome::kFull) {
    inventory_.GiveBack(job.room);
    inventory_.Unhold(plan.object);
    return Outcome::kNoRoom;
  }
  const uint64_t id = ++last_job_;
  job_of_[plan.object] = id;
  if (plan.owner == Owner::kTask) of_tasks_.emplace(plan.task, id);
  jobs_.emplace(id, std::move(job));
  if (outcome == RoomOutcome::kDone) {
    IssueAll(id);
  } else {
    making_.push_back(id);
  }
  return Outcome::kStarted;
}

// A member of a group that is not complete has one, too.
bool CopyJobs::HasSource(const Object& object) const {
  if (object.state != ObjectState::kCommitted || inventory_.IsDying(object)) return false;
  for (size_t copy = 0; copy < object.copy_count; ++copy) {
    if (inventory_.IsReadable(object, copy)) return true;
  }
  return false;
}

// The copy that is to go, if it is a move.
bool CopyJobs::IsMoved(const Object& object, size_t copy, NodeId source) const {
  return source != 0 && std::ranges::any_of(object.copy(copy), [&](const CopyExtent& extent) {
           return !extent.is_void() && inventory_.nodes()[extent.node].id == source;
         });
}

// Those of the copies that stay.
void CopyJobs::TakeDomains(const Job& job) {
  taken_domains_.clear();
  const Object& object = inventory_.objects()[job.plan.object];
  for (size_t copy = 0; copy < object.copy_count; ++copy) {
    const auto extents = object.copy(copy);
    if (extents[0].is_retired || IsMoved(object, copy, job.plan.source)) continue;
    for (const CopyExtent& extent : extents) {
      if (!extent.is_void())
        taken_domains_.push_back(inventory_.nodes().views()[extent.node].domain);
    }
  }
}

bool CopyJobs::CanTake(const Job& job, uint32_t slot, uint64_t bytes) const {
  const NodeView& view = inventory_.nodes().views()[slot];
  const NodeId node = inventory_.nodes()[slot].id;
  return view.is_open && node != job.plan.source &&
         (job.plan.target == 0 || job.plan.target == node) &&
         view.free_bytes + view.evictable_bytes >= bytes &&
         std::ranges::find(taken_domains_, view.domain) == taken_domains_.end();
}

bool CopyJobs::HasDomain(const Job& job) const {
  for (uint32_t slot = 0; slot < inventory_.nodes().size(); ++slot) {
    if (CanTake(job, slot, 0)) return true;
  }
  return false;
}

// REQUIRES: TakeDomains, of this job.
RoomOutcome CopyJobs::ReserveAll(Job& job) {
  Room& room = job.room;
  const bool is_whole = std::ranges::all_of(
      room.extents, [this](const Reserved& extent) { return inventory_.nodes().IsThere(extent); });
  if (!is_whole || ++room.asks > kMostAsks) return RoomOutcome::kFull;
  while (room.extents.size() < job.wanted.stripes) {
    const uint64_t bytes = job.wanted.ExtentBytes(room.extents.size());
    const RoomOutcome outcome = ReserveOne(job, bytes);
    if (outcome != RoomOutcome::kDone) return outcome;
    inventory_.Keep(room.extents.back());
    job.making = kNoIndex;
    room.Restart();
  }
  return RoomOutcome::kDone;
}

// Where the stripe before it is, if that has room: few nodes leave domains to other copies.
RoomOutcome CopyJobs::ReserveOne(Job& job, uint64_t bytes) {
  candidates_.clear();
  placer_->Begin(inventory_.nodes().views(), {.bytes = bytes});
  uint32_t slot = job.room.extents.empty() ? placer_->Next() : job.room.extents.back().slot;
  for (; slot != Placer::kNone; slot = placer_->Next()) {
    if (!CanTake(job, slot, bytes)) continue;
    candidates_.push_back(slot);
    const auto found =
        job.making == kNoIndex ? inventory_.Reserve(slot, bytes) : std::optional<Reserved>{};
    if (!found) continue;
    job.room.extents.push_back(*found);
    return RoomOutcome::kDone;
  }
  if (!job.plan.may_evict) return RoomOutcome::kFull;
  const auto first = std::ranges::find(candidates_, job.making);
  if (first != candidates_.end()) std::rotate(candidates_.begin(), first, first + 1);
  for (const uint32_t slot : candidates_) {
    const RoomOutcome outcome = Evict(job, slot, bytes);
    if (outcome != RoomOutcome::kFull) return outcome;
  }
  return RoomOutcome::kFull;
}

RoomOutcome CopyJobs::Evict(Job& job, uint32_t slot, uint64_t bytes) {
  if (job.making != slot) {
    const Reserved grown = std::exchange(job.room.grown, {});
    if (grown.slot != kNoIndex) inventory_.FreeReserved(grown);
    job.room.searched_bytes = 0;
  }
  Reserved reserved;
  const RoomOutcome outcome = inventory_.MakeRoomOn(slot, bytes, job.room, reserved);
  job.making = slot;
  if (outcome == RoomOutcome::kDone) job.room.extents.push_back(reserved);
  return outcome;
}

void CopyJobs::Work(int& steps) {
  for (size_t left = making_.size(); left > 0 && steps > 0; --left) {
    const uint64_t id = making_.front();
    making_.pop_front();
    const auto found = jobs_.find(id);
    if (found == jobs_.end()) continue;
    Job& job = found->second;
    steps -= 100;  // of evictions, at least
    TakeDomains(job);
    const RoomOutcome outcome = job.problem.empty() ? ReserveAll(job) : RoomOutcome::kFull;
    if (outcome == RoomOutcome::kMaking) {
      making_.push_back(id);
    } else if (outcome == RoomOutcome::kDone) {
      IssueAll(id);
    } else {
      Fail(id, "there is no room for it");
    }
  }
}

void CopyJobs::IssueAll(uint64_t id) {
  const uint32_t stripes = jobs_.at(id).wanted.stripes;
  for (uint32_t stripe = 0; stripe < stripes; ++stripe) Issue(id, stripe);
}

void CopyJobs::Issue(uint64_t id, uint32_t stripe) {
  Job& job = jobs_.at(id);
  const NodeId node = job.room.extents[stripe].node;
  orders_[++last_order_] = {id, stripe, node, false};
  job.orders.insert(last_order_);
  queues_[node].insert(last_order_);
}

void CopyJobs::AppendOrders(NodeId node, std::vector<CopyOrder>& orders) {
  const auto queue = queues_.find(node);
  if (queue == queues_.end()) return;
  uint64_t bytes = 0;
  for (const uint64_t id : queue->second) {
    Order& order = orders_.at(id);
    orders.push_back(Describe(id, order));
    jobs_.at(order.job).sent += !order.is_sent;
    order.is_sent = true;
    bytes += orders.back().bytes + sizeof(uint32_t) * orders.back().checksums.size();
    if (orders.size() >= kOrdersAtNode || bytes >= kBytesAtNode) return;
  }
}

CopyOrder CopyJobs::Describe(uint64_t id, const Order& order) const {
  const Job& job = jobs_.at(order.job);
  const Object& object = inventory_.objects()[job.plan.object];
  const Reserved& target = job.room.extents[order.stripe];
  CopyOrder out{.order = id, .nodes = {}, .sources = {}, .checksums = {}};
  out.generation = job.generation;
  out.offset = inventory_.nodes()[target.slot].allocator->OffsetOf(target.block);
  out.bytes = job.wanted.ExtentBytes(order.stripe) - kHeaderBytes;
  out.part_bytes = object.part_bytes();
  for (size_t copy = 0; copy < object.copy_count; ++copy) {
    const CopyExtent& extent = object.copy(copy)[order.stripe];
    if (extent.is_void() || object.copy(copy)[0].is_retired) continue;
    const NodeRecord& node = inventory_.nodes()[extent.node];
    if (!node.is_readable()) continue;
    out.sources.push_back(
        {static_cast<uint32_t>(out.nodes.size()), node.allocator->OffsetOf(extent.block)});
    out.nodes.push_back({node.id, node.endpoint});
  }
  if (!object.head().has_checksums) return out;
  const size_t first = order.stripe * ChunkCount(job.wanted.stripe_bytes, out.part_bytes);
  const auto own = object.checksums().subspan(first, ChunkCount(out.bytes, out.part_bytes));
  out.checksums.assign(own.begin(), own.end());
  return out;
}

void CopyJobs::Heard(NodeId node, const CopyResult& result) {
  const auto found = orders_.find(result.order);
  if (found == orders_.end() || found->second.node != node || !found->second.is_sent) return;
  const Order order = found->second;
  Forget(result.order);
  Job& job = jobs_.at(order.job);
  --job.sent;
  BlameSources(job, result);
  if (result.is_done) {
    ++job.landed;
  } else if (job.retries-- > 0 && job.problem.empty() && result.corrupt.empty()) {
    Issue(order.job, order.stripe);
  } else {
    Fail(order.job, result.corrupt.empty() ? "its node could not fetch it" : "its bytes are wrong");
    return;
  }
  const bool is_over = job.problem.empty() ? job.landed == job.wanted.stripes : job.sent == 0;
  if (is_over) Finish(order.job);
}

// Copies whose bytes are wrong go.
void CopyJobs::BlameSources(const Job& job, const CopyResult& result) {
  const Object& object = inventory_.objects()[job.plan.object];
  for (const NodeId node : result.corrupt) {
    for (size_t copy = object.copy_count; copy-- > 0;) {
      if (object.state != ObjectState::kCommitted) return;
      if (object.copy(copy)[0].is_retired || !IsMoved(object, copy, node)) continue;
      ++inventory_.counters().corrupt;
      inventory_.RetireCopy(job.plan.object, copy);
    }
  }
}

void CopyJobs::Lost(NodeId node, const std::string& name) {
  const auto queue = queues_.find(node);
  if (queue != queues_.end()) {
    const Queue orders = queue->second;
    for (const uint64_t id : orders) {
      const Order order = orders_.at(id);
      Forget(id);
      jobs_.at(order.job).sent -= order.is_sent;
    }
  }
  std::vector<uint64_t> hit;
  for (const auto& [id, job] : jobs_) {
    const bool is_there = std::ranges::any_of(
        job.room.extents, [node](const Reserved& extent) { return extent.node == node; });
    if (is_there) hit.push_back(id);
  }
  for (const uint64_t id : hit) Fail(id, name + " was lost");
}

void CopyJobs::Cancel(uint64_t task) {
  std::vector<uint64_t> own;
  for (auto at = of_tasks_.lower_bound({task, 0}); at != of_tasks_.end(); ++at) {
    if (at->first != task) break;
    own.push_back(at->second);
  }
  for (const uint64_t id : own) Fail(id, "it was cancelled");
}

// Ends a job as soon as no node writes for it.
void CopyJobs::Fail(uint64_t id, std::string problem) {
  Job& job = jobs_.at(id);
  if (job.problem.empty()) job.problem = std::move(problem);
  const std::set<uint64_t> own = job.orders;
  for (const uint64_t order : own) {
    if (!orders_.at(order).is_sent) Forget(order);
  }
  if (job.sent == 0) Finish(id);
}

void CopyJobs::Forget(uint64_t order) {
  const auto found = orders_.find(order);
  const auto queue = queues_.find(found->second.node);
  queue->second.erase(order);
  if (queue->second.empty()) queues_.erase(queue);
  jobs_.at(found->second.job).orders.erase(order);
  orders_.erase(found);
}

void CopyJobs::Finish(uint64_t id) {
  Job& job = jobs_.at(id);
  if (job.problem.empty()) job.problem = Attach(job);
  inventory_.GiveBack(job.room);
  const uint32_t object = job.plan.object;
  uint64_t bytes = 0;
  for (uint32_t stripe = 0; stripe < job.wanted.stripes; ++stripe) {
    const uint64_t units = (job.wanted.ExtentBytes(stripe) - 1) / Allocator::kGranularity + 1;
    bytes += units * Allocator::kGranularity;
  }
  ended_.push_back({job.plan, job.generation, bytes, std::move(job.problem)});
  job_of_.erase(object);
  of_tasks_.erase({job.plan.task, id});
  jobs_.erase(id);
  inventory_.Unhold(object);
}

// Why it could not be; empty: the copy is part of the object.
std::string CopyJobs::Attach(Job& job) {
  const uint32_t index = job.plan.object;
  Object& object = inventory_.objects()[index];
  if (object.state != ObjectState::kCommitted) return "the object is gone";
  const bool is_there = std::ranges::all_of(job.room.extents, [this](const Reserved& extent) {
    return inventory_.nodes().IsThere(extent);
  });
  if (!is_there) return "its node was lost";
  if (object.copy_count >= kMaxReplicas) return "it has as many copies as can be";
  if (job.plan.is_wanted && object.wanted < kMaxReplicas) ++object.wanted;
  inventory_.AddCopy(index, job.room.extents);
  job.room.extents.clear();
  for (size_t copy = object.copy_count - 1; copy-- > 0;) {
    if (object.copy(copy)[0].is_retired || !IsMoved(object, copy, job.plan.source)) continue;
    inventory_.RetireCopy(index, copy);
  }
  return "";
}

std::optional<CopyJobs::End> CopyJobs::TakeEnded() {
  if (ended_.empty()) return std::nullopt;
  End end = std::move(ended_.front());
  ended_.pop_front();
  return end;
}

void CopyJobs::Check() const {
  size_t queued = 0;
  for (const auto& [node, queue] : queues_) queued += queue.size();
  MC_CHECK(queued == orders_.size(), "%zu orders in queues, %zu in all", queued, orders_.size());
  size_t owned = 0;
  for (const auto& [id, job] : jobs_) owned += job.orders.size();
  MC_CHECK(owned == orders_.size(), "%zu orders of jobs, %zu in all", owned, orders_.size());
  std::unordered_map<uint64_t, uint32_t> sent;
  for (const auto& [id, order] : orders_) {
    const bool is_known = jobs_.contains(order.job) && jobs_.at(order.job).orders.contains(id);
    MC_CHECK(is_known, "order %llu", static_cast<unsigned long long>(id));
    sent[order.job] += order.is_sent;
  }
  MC_CHECK(job_of_.size() == jobs_.size(), "%zu objects, %zu jobs", job_of_.size(), jobs_.size());
  for (const auto& [id, job] : jobs_) {
    const Object& object = inventory_.objects()[job.plan.object];
    MC_CHECK(job.sent == sent[id], "%u orders are sent, %u known", job.sent, sent[id]);
    MC_CHECK(object.holds > 0 && object.generation == job.generation, "object %u", job.plan.object);
    const bool goes_on = !job.orders.empty() || std::ranges::find(making_, id) != making_.end();
    MC_CHECK(goes_on, "job %llu has stopped", static_cast<unsigned long long>(id));
  }
}

}  // namespace mooncake::store
