// Placer: on which nodes an object's bytes go: one choice after another, best first, as a
// strategy wants it. Pure. Two copies of an object never share a failure domain.
//
//   placement->Begin(views, {.bytes = 4096});
//   for (uint32_t slot = placement->Next(); slot != Placer::kNone; slot = placement->Next()) {
//     if (Allocate(slot)) { placement->Take(slot); break; }
//   }
//
// Strategies: `free-ratio-first` (most free space in proportion), `random`, `round-robin` (one
// after another, in the order of the views) and `local-first` (nodes of the writer's host, then as
// free-ratio-first). Nodes that are preferred by name come before all others, in their order; those
// that are doubted come after all others.
//
// Thread safety: none; one owner. It allocates nothing once it has seen as many nodes.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace mooncake::store {

// A node as placement sees it. Hosts and domains are numbers that stand for their names.
struct NodeView {
  bool is_open = false;  // takes new objects: neither suspected nor draining
  uint32_t domain = 0;
  uint32_t host = 0;
  uint64_t capacity_bytes = 0;
  uint64_t free_bytes = 0;
  uint64_t evictable_bytes = 0;
  std::string_view name{};
  bool is_doubted = false;  // a write to it has failed just now: to be taken last
};

struct Wish {
  static constexpr uint32_t kNoHost = ~0u;

  uint64_t bytes = 0;       // of the extent
  uint32_t host = kNoHost;  // the writer's
  std::span<const std::string> preferred{};
};

class Placer {
 public:
  static constexpr uint32_t kNone = ~0u;

  // `seed` drives `random`. kInvalidArgument for an unknown strategy; the message lists them.
  static Result<std::unique_ptr<Placer>> Make(std::string_view strategy, uint64_t seed);
  static std::vector<std::string> Strategies();

  // Ranks the nodes for an object of which nothing is placed yet.
  void Begin(std::span<const NodeView> nodes, const Wish& wish);
  // The index of the best node that was not named since Begin, is open, could hold the
  // bytes if all that is evictable went, and lies in no excluded domain. kNone: there is none left.
  uint32_t Next();
  // No later choice lies in this domain.
  void Exclude(uint32_t domain);
  // A copy lies on this node: excludes its domain. REQUIRES: Next() gave it.
  void Take(uint32_t slot);

  // How many copies could be made were there room: distinct domains of open nodes.
  static uint32_t CountDomains(std::span<const NodeView> nodes);

 private:
  struct Candidate {
    uint32_t slot = 0;
    uint32_t domain = 0;
    uint32_t preference = 0;  // less is better
    double score = 0;         // more is better
    bool is_named = false;
  };
  struct Strategy;

  Placer(const Strategy& strategy, uint64_t seed) : strategy_(strategy), random_(seed) {}
  static bool IsBefore(const Candidate& one, const Candidate& other);
  uint64_t Random();
  double FreeRatio(const NodeView& node, uint32_t slot, const Wish& wish);
  double AnyOrder(const NodeView& node, uint32_t slot, const Wish& wish);
  double InTurn(const NodeView& node, uint32_t slot, const Wish& wish);
  double LocalFirst(const NodeView& node, uint32_t slot, const Wish& wish);

  static const Strategy kStrategies[];

  const Strategy& strategy_;
  uint64_t random_;
  uint32_t turn_ = 0;        // round-robin: whose it is
  uint32_t node_count_ = 0;  // as of Begin
  std::vector<Candidate> candidates_;
  uint32_t asked_ = 0;  // since Begin
  size_t next_ = 0;     // once they are sorted
};

}  // namespace mooncake::store
