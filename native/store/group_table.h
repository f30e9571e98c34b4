// GroupTable: names of objects that live and die together, and who belongs to each.
//
// Thread safety: none; one owner.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "store/growing_table.h"
#include "store/key_hash.h"
#include "store/object_table.h"

namespace mooncake::store {

struct Group {
  std::string name;
  uint32_t size = 0;       // members without which none is readable; 0: not known
  uint32_t committed = 0;  // of the members
  bool is_dead = false;    // one is gone; the others are going, and the name is free again
  std::vector<uint32_t> members;
  std::array<uint32_t, 3> pins{};  // members by their own Pin
  uint32_t unsettled = 0;          // of the members, the first so many may be of another class yet

  // Of all its members, for one that is evicted takes the others with it.
  Pin pin() const {
    if (pins[static_cast<int>(Pin::kHard)] > 0) return Pin::kHard;
    return pins[static_cast<int>(Pin::kSoft)] > 0 ? Pin::kSoft : Pin::kNone;
  }
  bool is_complete() const { return !is_dead && committed >= size; }
};

class GroupTable {
 public:
  // Makes the object a member; returns the group's number.
  uint32_t Join(std::string_view name, uint32_t size, uint32_t index);
  // REQUIRES: it is a member. The group goes with its last one.
  void Leave(uint32_t group, uint32_t index);
  void Kill(uint32_t group);

  Group& operator[](uint32_t group) { return groups_[group]; }
  const Group& operator[](uint32_t group) const { return groups_[group]; }
  uint32_t room() const { return static_cast<uint32_t>(groups_.size()); }  // numbers are less
  size_t count() const { return by_name_.size(); }                         // of the living

  // Dead ones that still have members.
  std::deque<uint32_t>& dead() { return dead_; }
  const std::deque<uint32_t>& dead() const { return dead_; }

 private:
  // Of an object in its group's members.
  struct Seat {
    uint32_t hash = 0;
    uint32_t number = 0;  // of the object, + 1
    uint32_t at = 0;
    bool is_set() const { return number != 0; }
  };

  Seat* SeatOf(uint32_t index);

  std::deque<Group> groups_;
  GrowingTable<Seat, 6> seats_;
  std::vector<uint32_t> unused_;
  std::unordered_map<std::string_view, uint32_t> by_name_;  // views of the groups' own names
  std::deque<uint32_t> dead_;
};

}  // namespace mooncake::store
