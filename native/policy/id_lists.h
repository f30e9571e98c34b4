// IdLists: a fixed number of doubly linked lists over dense ids, each id in one list at most, with
// a word of the owner's beside it: 12 bytes an id. The lists are rings that end at themselves, so
// that an id leaves its list, and a list joins another, without anyone knowing who is in which.
//
// Thread safety: none; one owner.
#pragma once

#include <cstdint>
#include <vector>

#include "base/check.h"
#include "base/chunked_array.h"

namespace mooncake {

class IdLists {
 public:
  static constexpr uint32_t kNone = ~0u;
  static constexpr int kMaxLists = 255;
  static constexpr uint32_t kMaxId = kNone - kMaxLists - 1;  // above it are the lists' own ends

  explicit IdLists(int lists) {
    MC_CHECK(lists <= kMaxLists, "%d lists", lists);
    for (int list = 0; list < lists; ++list) ends_.push_back({EndOf(list), EndOf(list), 0});
  }

  bool Covers(uint32_t id) const { return id < ids_.room(); }
  // Makes room for an id; its mark is 0.
  void Cover(uint32_t id) { ids_.Cover(id); }
  uint32_t mark(uint32_t id) const { return ids_[id].mark; }
  uint32_t& mark(uint32_t id) { return ids_[id].mark; }

  // REQUIRES of both: the id is in no list.
  void PushBack(int list, uint32_t id) { Link(id, At(EndOf(list)).previous, EndOf(list)); }
  void PushFront(int list, uint32_t id) { Link(id, EndOf(list), At(EndOf(list)).next); }
  // REQUIRES: the id is in a list.
  void Remove(uint32_t id) {
    const Node node = ids_[id];
    At(node.previous).next = node.next;
    At(node.next).previous = node.previous;
  }
  // Puts all of `from` before what is in `to`.
  void JoinFront(int from, int to) {
    const uint32_t end = EndOf(from);
    if (At(end).next == end) return;
    const uint32_t head = At(end).next, tail = At(end).previous, old = At(EndOf(to)).next;
    At(EndOf(to)).next = head;
    At(head).previous = EndOf(to);
    At(tail).next = old;
    At(old).previous = tail;
    At(end) = {end, end, 0};
  }

  // kNone: there is none.
  uint32_t First(int list) const { return IdOrNone(At(EndOf(list)).next); }
  uint32_t After(uint32_t id) const { return IdOrNone(ids_[id].next); }

 private:
  struct Node {
    uint32_t previous, next, mark;
  };

  static uint32_t EndOf(int list) { return kMaxId + 1 + static_cast<uint32_t>(list); }
  static uint32_t IdOrNone(uint32_t id) { return id > kMaxId ? kNone : id; }
  Node& At(uint32_t id) { return id > kMaxId ? ends_[id - kMaxId - 1] : ids_[id]; }
  const Node& At(uint32_t id) const { return id > kMaxId ? ends_[id - kMaxId - 1] : ids_[id]; }
  void Link(uint32_t id, uint32_t previous, uint32_t next) {
    ids_[id].previous = previous;
    ids_[id].next = next;
    At(previous).next = id;
    At(next).previous = id;
  }

  ChunkedArray<Node> ids_;
  std::vector<Node> ends_;
};

}  // namespace mooncake
