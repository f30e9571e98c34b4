// CopyJobs: makes further copies of objects: takes room for one on other nodes, orders those to
// fetch its stripes, and attaches it once all are in place. Pure; who wants a copy, and what comes
// of it, is the caller's business.
//
// Thread safety: none; one owner.
// Invariants: an object has one job at a time, and is held for as long as it lasts. What a node was
// sent an order for is not used otherwise before the node has reported, or is lost: nobody else
// writes there. A copy that was made for an object that is gone, or of which the node is, is none.
//
// An object of several stripes is copied whole, also where only one of them is to move.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <unordered_map>
#include <vector>

#include "store/inventory.h"
#include "store/messages.h"
#include "store/placement.h"

namespace mooncake::store {

class CopyJobs {
 public:
  enum class Owner : uint8_t { kTask, kRepair, kHeat };
  struct Plan {
    Owner owner = Owner::kTask;
    uint64_t task = 0;  // the owner's
    uint32_t object = kNoIndex;
    NodeId target = 0;  // 0: where there is room
    NodeId source = 0;  // this node's copy goes once the new one is there
    bool may_evict = false;
    bool is_wanted = false;  // the object is to have one copy more from now on
  };
  enum class Outcome {
    kStarted,
    kLater,     // as much is under way as may be, or the object is being copied
    kNoRoom,    // on any node that could have it
    kNoDomain,  // there is no node in a domain without a copy of it
    kNoSource,  // it is gone, or cannot be read now
  };
  struct End {
    Plan plan;
    uint64_t generation = 0;
    uint64_t bytes = 0;   // of the new copy, in its nodes' memory
    std::string problem;  // empty: it is there
  };

  CopyJobs(Inventory& inventory, uint64_t stripe_bytes);

  Outcome Start(const Plan& plan);
  bool IsCopied(uint32_t object) const { return job_of_.contains(object); }
  bool is_full() const;
  // The task's jobs come to nothing, at a cost that others' do not add to.
  void Cancel(uint64_t task);
  // What has ended and was not taken yet.
  std::optional<End> TakeEnded();

  // Goes on with jobs that wait for room; `steps` counts down.
  void Work(int& steps);
  bool has_work() const { return !making_.empty() || !ended_.empty(); }

  // Appends what the node is to do now.
  void AppendOrders(NodeId node, std::vector<CopyOrder>& orders);
  void Heard(NodeId node, const CopyResult& result);
  void Lost(NodeId node, const std::string& name);

  // Copies that can be read, or could be if their nodes were heard of.
  size_t LiveCopies(const Object& object) const;
  size_t orders() const { return orders_.size(); }
  void Check() const;

 private:
  struct Job {
    Plan plan;
    uint64_t generation = 0;
    Wanted wanted;
    Room room;
    uint32_t making = kNoIndex;   // the slot where room is being made
    uint32_t landed = 0;          // stripes
    uint32_t sent = 0;            // orders that a node may be carrying out,
    std::set<uint64_t> orders{};  // of all that have not landed
    int retries = 2;
    std::string problem;  // set: it ends when nothing is sent any more
  };
  struct Order {
    uint64_t job = 0;
    uint32_t stripe = 0;
    NodeId node = 0;
    bool is_sent = false;
  };
  using Queue = std::set<uint64_t>;  // orders, in the order in which they were issued

  void TakeDomains(const Job& job);
  bool IsMoved(const Object& object, size_t copy, NodeId source) const;
  bool HasSource(const Object& object) const;
  bool HasDomain(const Job& job) const;
  bool CanTake(const Job& job, uint32_t slot, uint64_t bytes) const;
  RoomOutcome ReserveAll(Job& job);
  RoomOutcome ReserveOne(Job& job, uint64_t bytes);
  RoomOutcome Evict(Job& job, uint32_t slot, uint64_t bytes);
  void Issue(uint64_t id, uint32_t stripe);
  void IssueAll(uint64_t id);
  CopyOrder Describe(uint64_t id, const Order& order) const;
  void Fail(uint64_t id, std::string problem);
  void Forget(uint64_t order);
  void Finish(uint64_t id);
  std::string Attach(Job& job);
  void BlameSources(const Job& job, const CopyResult& result);

  Inventory& inventory_;
  const uint64_t stripe_bytes_;
  std::unique_ptr<Placer> placer_;
  std::map<uint64_t, Job> jobs_;
  std::unordered_map<uint32_t, uint64_t> job_of_;     // object -> job
  std::set<std::pair<uint64_t, uint64_t>> of_tasks_;  // task and job
  std::deque<uint64_t> making_;                       // jobs, some of which have ended
  std::unordered_map<uint64_t, Order> orders_;
  std::unordered_map<NodeId, Queue> queues_;
  std::deque<End> ended_;
  uint64_t last_job_ = 0, last_order_ = 0;

  // Of the call that goes on; kept for their memory.
  std::vector<uint32_t> taken_domains_, candidates_;
};

}  // namespace mooncake::store
