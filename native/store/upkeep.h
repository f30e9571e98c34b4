// Upkeep: sees to it that objects have as many copies as was asked for, and that those which are
// looked up very often have more. Pure.
//
// Repair: what has lost a copy gets another, evicting others as a put would. Where it cannot be,
// for want of room or of nodes, all is looked through again after a while, or when a node comes.
//
// Heat: lookups of an object are counted, and the count is halved every half-life. An object that
// is looked up more often than `hot_gets_per_s` gets a copy more, up to `hot_replicas` in all,
// where there is room without evicting anything; together at most a tenth of the pool. The further
// copies are the first to be evicted, and go when the object has cooled down to half of that.
//
// Thread safety: none; one owner.
#pragma once

#include <cstdint>
#include <deque>
#include <unordered_map>

#include "store/copy_jobs.h"
#include "store/master_options.h"

namespace mooncake::store {

class Upkeep {
 public:
  Upkeep(Inventory& inventory, CopyJobs& jobs, const MasterOptions& options);

  // An object was looked up. Cheap.
  void LookedUp(uint32_t index, double now_s);
  // Some hundred objects at most have cooled down or are to be copied: from time to time.
  void Tick(double now_s);
  void Work(int& steps);
  bool has_work() const {
    return repairs_ && !jobs_.is_full() && (is_scanning_ || inventory_.has_short());
  }
  void Ended(const CopyJobs::End& end);
  // There may be room now.
  void NodeCame() { Rescan(); }

  size_t hot_objects() const { return hot_.size(); }
  uint64_t hot_bytes() const { return hot_bytes_; }  // of further copies

 private:
  struct Hot {
    uint64_t generation = 0;
    uint64_t bytes = 0;  // of the further copies, as of its last look
    double retry_s = 0;
  };

  uint32_t HeatOf(uint32_t word, double now_s) const;
  uint32_t PeriodAt(double now_s) const;
  bool Repair(uint32_t index);
  void Rescan();
  bool LookAt(uint32_t index, Hot& hot, double now_s);
  void DropExtra(uint32_t index);
  uint64_t Capacity() const;

  Inventory& inventory_;
  CopyJobs& jobs_;
  const bool repairs_;
  const double half_life_s_;
  const uint32_t hot_heat_;  // of an object that is looked up just so often; 0: none is hot
  const size_t hot_replicas_;

  bool is_scanning_ = false;
  uint32_t scanned_ = 0;  // objects before it were looked at
  bool is_short_of_room_ = false;
  double rescan_s_ = 0;

  std::unordered_map<uint32_t, Hot> hot_;
  std::deque<uint32_t> hot_order_;  // in which they are looked at
  uint64_t hot_bytes_ = 0;
};

}  // namespace mooncake::store
