#include "store/group_table.h"

#include <algorithm>

#include "base/check.h"

namespace mooncake::store {

uint32_t GroupTable::Join(std::string_view name, uint32_t size, uint32_t index) {
  const auto known = by_name_.find(name);
  uint32_t number = known != by_name_.end() ? known->second : kNoIndex;
  if (number == kNoIndex) {
    if (unused_.empty()) {
      unused_.push_back(room());
      groups_.emplace_back();
    }
    number = unused_.back();
    unused_.pop_back();
    groups_[number].name = name;
    by_name_.emplace(groups_[number].name, number);
  }
  Group& group = groups_[number];
  group.size = std::max(group.size, size);
  seats_.Insert({HashIndex(index), index + 1, static_cast<uint32_t>(group.members.size())});
  group.members.push_back(index);
  return number;
}

GroupTable::Seat* GroupTable::SeatOf(uint32_t index) {
  Seat* seat =
      seats_.Find(HashIndex(index), [&](const Seat& one) { return one.number == index + 1; });
  MC_CHECK(seat != nullptr, "object %u is in no group", index);
  return seat;
}

// The last member takes its seat.
void GroupTable::Leave(uint32_t number, uint32_t index) {
  Group& group = groups_[number];
  const uint32_t at = SeatOf(index)->at;
  MC_CHECK(group.members[at] == index, "object %u is not in its group", index);
  SeatOf(group.members.back())->at = at;
  group.members[at] = group.members.back();
  group.members.pop_back();
  seats_.Erase(HashIndex(index), [&](const Seat& one) { return one.number == index + 1; });
  if (!group.members.empty()) return;
  if (group.is_dead) {
    dead_.erase(std::ranges::find(dead_, number));  // most often the first
  } else {
    by_name_.erase(group.name);
  }
  group = Group{};
  unused_.push_back(number);
}

void GroupTable::Kill(uint32_t number) {
  Group& group = groups_[number];
  if (group.is_dead) return;
  by_name_.erase(group.name);
  group.is_dead = true;
  dead_.push_back(number);
}

}  // namespace mooncake::store
