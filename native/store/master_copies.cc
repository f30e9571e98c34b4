// Background copies: what was asked for, what repair and heat want, and what nodes report.
#include "store/master_core.h"

namespace mooncake::store {

TaskCreated MasterCore::Step(const TaskCreate& event, double now_s) {
  now_s = Advance(now_s);
  TaskCreated created = tasks_.Create(event, now_s);
  Work(settle_steps());
  return created;
}

Result<Tasks> MasterCore::Step(const TaskQuery& event, double now_s) {
  now_s = Advance(now_s);
  Work(settle_steps());
  Result<Tasks> answer = tasks_.Query(event, now_s);
  EndCopies();
  return answer;
}

void MasterCore::WorkOnCopies(int& steps) {
  if (inventory_.nodes().TakeOpened()) upkeep_.NodeCame();
  EndCopies();
  jobs_.Work(steps);
  EndCopies();
  upkeep_.Work(steps);
  tasks_.Work(steps, now_s_);
}

void MasterCore::EndCopies() {
  while (const auto end = jobs_.TakeEnded()) {
    Count(*end);
    end->plan.owner == CopyJobs::Owner::kTask ? tasks_.Ended(*end) : upkeep_.Ended(*end);
  }
}

void MasterCore::Count(const CopyJobs::End& end) {
  Counters& counters = inventory_.counters();
  if (!end.problem.empty()) {
    ++counters.failed_copies;
  } else if (end.plan.owner == CopyJobs::Owner::kRepair) {
    ++counters.repaired_copies;
  } else if (end.plan.owner == CopyJobs::Owner::kHeat) {
    ++counters.hot_copies;
  } else if (end.plan.source != 0) {
    ++counters.moved_copies;
  } else {
    ++counters.asked_copies;
  }
}

}  // namespace mooncake::store
