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
  group.members.push_back(index);
  return number;
}

// Whoever goes in turn is found at once.
void GroupTable::Leave(uint32_t number, uint32_t index) {
  Group& group = groups_[number];
  const auto found = std::find(group.members.rbegin(), group.members.rend(), index);
  MC_CHECK(found != group.members.rend(), "object %u is not in its group", index);
  *found = group.members.back();
  group.members.pop_back();
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
