// The master's invariants, checked from scratch. Linear; for tests.
#include "base/check.h"
#include "store/master_core.h"

namespace mooncake::store {

void MasterCore::Check() const {
  inventory_.Check();
  const ObjectTable& objects = inventory_.objects();
  std::vector<uint32_t> holds(objects.record_count(), 0);
  size_t pins = 0;
  for (const auto& [id, lease] : leases_) {
    pins += lease.is_pin;
    const auto session = sessions_.find(lease.session);
    const bool is_owned = session != sessions_.end() && session->second.leases.contains(id);
    const bool is_ending = lease.fences > 0 || !ended_.empty() || !ended_leases_.empty();
    MC_CHECK(is_owned || is_ending, "a lease without its session");
    for (const uint32_t index : lease.objects) ++holds[index];
  }
  jobs_.Check();
  MC_CHECK(leases_.size() - pins == leases_by_end_.size(), "leases by end");
  uint64_t writing = 0, puts = 0;
  for (uint32_t index = 0; index < objects.record_count(); ++index) {
    MC_CHECK(objects[index].holds == holds[index] + jobs_.IsCopied(index), "object %u: holds",
             index);
    writing += objects[index].state == ObjectState::kWriting;
  }
  for (const auto& [id, session] : sessions_) puts += session.puts.table.size();
  MC_CHECK(writing == writing_, "%zu puts", static_cast<size_t>(writing_));
  MC_CHECK(puts == writing || !ended_.empty(), "puts of sessions");
  for (const auto& [index, making] : making_room_) {
    MC_CHECK(objects[index].state == ObjectState::kWriting, "room for object %u", index);
  }
}

}  // namespace mooncake::store
