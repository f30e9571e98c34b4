#include "store/upkeep.h"

#include <algorithm>
#include <cmath>

namespace mooncake::store {
namespace {

// A count of lookups, and in which half-life it was made: modulo 4096, so that one that was not
// touched for as many of them may be taken for fresh; it is then halved as it should have been.
constexpr int kHeatBits = 20;
constexpr uint32_t kMaxHeat = (1u << kHeatBits) - 1;
constexpr uint32_t kPeriods = 1u << (32 - kHeatBits);

constexpr double kRescan_s = 30;
constexpr size_t kMaxHot = 1 << 16;
constexpr int kLooksATick = 256;
constexpr uint64_t kHotShare = 10;  // of the pool: one in

// Looked up at an even rate, an object has twice a half-life's lookups when it is halved.
uint32_t HeatAt(double gets_per_s, double half_life_s) {
  return static_cast<uint32_t>(std::min<double>(2 * gets_per_s * half_life_s, kMaxHeat));
}

}  // namespace

Upkeep::Upkeep(Inventory& inventory, CopyJobs& jobs, const MasterOptions& options)
    : inventory_(inventory),
      jobs_(jobs),
      repairs_(options.repairs),
      half_life_s_(options.heat_half_life_s),
      hot_heat_(HeatAt(options.hot_gets_per_s, options.heat_half_life_s)),
      hot_replicas_(options.hot_replicas) {}

uint32_t Upkeep::PeriodAt(double now_s) const {
  return static_cast<uint32_t>(static_cast<uint64_t>(now_s / half_life_s_) % kPeriods);
}

uint32_t Upkeep::HeatOf(uint32_t word, double now_s) const {
  const uint32_t age = (PeriodAt(now_s) - (word >> kHeatBits)) % kPeriods;
  return age > kHeatBits ? 0 : (word & kMaxHeat) >> age;
}

void Upkeep::LookedUp(uint32_t index, double now_s) {
  if (hot_heat_ == 0) return;
  Object& object = inventory_.objects()[index];
  const uint32_t heat = std::min(HeatOf(object.heat, now_s) + 1, kMaxHeat);
  object.heat = PeriodAt(now_s) << kHeatBits | heat;
  if (heat < hot_heat_ || hot_.size() >= kMaxHot) return;
  const auto [hot, is_new] = hot_.try_emplace(index);
  if (is_new) hot_order_.push_back(index);
  if (hot->second.generation == object.generation) return;
  hot_bytes_ -= hot->second.bytes;  // of an object that is gone
  hot->second = {object.generation, 0, now_s};
}

void Upkeep::Tick(double now_s) {
  if (is_short_of_room_ && now_s >= rescan_s_) {
    rescan_s_ = now_s + kRescan_s;
    Rescan();
  }
  const size_t looks = std::min<size_t>(hot_order_.size(), kLooksATick);
  for (size_t look = 0; look < looks; ++look) {
    const uint32_t index = hot_order_.front();
    hot_order_.pop_front();
    const auto hot = hot_.find(index);
    if (LookAt(index, hot->second, now_s)) {
      hot_order_.push_back(index);
    } else {
      hot_bytes_ -= hot->second.bytes;
      hot_.erase(hot);
    }
  }
}

// False: it is hot no more.
bool Upkeep::LookAt(uint32_t index, Hot& hot, double now_s) {
  const Object& object = inventory_.objects()[index];
  const bool is_there =
      object.state == ObjectState::kCommitted && object.generation == hot.generation;
  if (!is_there) return false;
  const size_t live = jobs_.LiveCopies(object);
  const size_t made = live + jobs_.IsCopied(index);
  const size_t extra = made > object.wanted ? made - object.wanted : 0;
  hot_bytes_ += extra * object.size_bytes - hot.bytes;
  hot.bytes = extra * object.size_bytes;
  if (HeatOf(object.heat, now_s) < hot_heat_ / 2) {
    DropExtra(index);
    return false;
  }
  const bool is_wanted = live >= object.wanted && live < hot_replicas_ && now_s >= hot.retry_s &&
                         hot_bytes_ + object.size_bytes <= Capacity() / kHotShare;
  if (!is_wanted) return true;
  const auto outcome = jobs_.Start({.owner = CopyJobs::Owner::kHeat, .object = index});
  if (outcome == CopyJobs::Outcome::kLater) return true;
  hot.retry_s = now_s + half_life_s_;
  if (outcome != CopyJobs::Outcome::kStarted) return true;
  hot_bytes_ += object.size_bytes;
  hot.bytes += object.size_bytes;
  return true;
}

void Upkeep::DropExtra(uint32_t index) {
  const Object& object = inventory_.objects()[index];
  size_t left = jobs_.LiveCopies(object);
  for (size_t copy = object.copy_count; copy-- > 0 && left > object.wanted;) {
    if (object.copy(copy)[0].is_retired || !inventory_.IsReadable(object, copy)) continue;
    inventory_.RetireCopy(index, copy);
    --left;
  }
}

uint64_t Upkeep::Capacity() const {
  uint64_t capacity = 0;
  for (const NodeView& view : inventory_.nodes().views()) capacity += view.capacity_bytes;
  return capacity;
}

void Upkeep::Rescan() {
  is_scanning_ = true;
  is_short_of_room_ = false;
  scanned_ = 0;
}

void Upkeep::Work(int& steps) {
  if (!repairs_) return inventory_.ForgetShort();
  while (steps > 0 && !jobs_.is_full()) {
    const uint32_t index = inventory_.TakeShort();
    if (index == kNoIndex) break;
    steps -= Repair(index) ? 10 : 1;
  }
  const uint32_t end = inventory_.objects().record_count();
  for (; is_scanning_ && steps > 0 && !jobs_.is_full(); ++scanned_) {
    if (scanned_ >= end) {
      is_scanning_ = false;
    } else {
      steps -= Repair(scanned_) ? 10 : scanned_ % 16 == 0;
    }
  }
}

// True when it took a while.
bool Upkeep::Repair(uint32_t index) {
  const Object& object = inventory_.objects()[index];
  if (object.state != ObjectState::kCommitted) return false;
  if (object.copy_count >= object.wanted && !object.has_retired) return false;
  if (jobs_.LiveCopies(object) >= object.wanted) return false;
  const auto outcome =
      jobs_.Start({.owner = CopyJobs::Owner::kRepair, .object = index, .may_evict = true});
  // For want of domains nothing can be done before a node comes.
  const bool is_later =
      outcome != CopyJobs::Outcome::kStarted && outcome != CopyJobs::Outcome::kNoDomain;
  is_short_of_room_ = is_short_of_room_ || is_later;
  return true;
}

void Upkeep::Ended(const CopyJobs::End& end) {
  const Object& object = inventory_.objects()[end.plan.object];
  if (end.plan.owner != CopyJobs::Owner::kRepair) return;
  const bool is_there =
      object.state == ObjectState::kCommitted && object.generation == end.generation;
  if (!end.problem.empty()) {
    is_short_of_room_ = is_short_of_room_ || is_there;
  } else if (is_there) {
    (void)Repair(end.plan.object);  // it may be short of more than one
  }
}

}  // namespace mooncake::store
