// Ledger: what the paths of peers that were let go of have done, so that no count goes backwards.
//
// Thread safety: all methods may be called by any thread.
// Invariants: one row a path; at most kRows, the longest untouched is dropped first.
#pragma once

#include <deque>
#include <mutex>
#include <span>
#include <vector>

#include "transfer/types.h"

namespace mooncake {

// True when both are of one path to one peer.
bool IsSamePath(const PathStatistics& a, const PathStatistics& b);

// Adds what was counted in `part` to `sum`; what is true only now stays that of `sum`.
void AddCounts(PathStatistics& sum, const PathStatistics& part);

class Ledger {
 public:
  static constexpr size_t kRows = 1024;

  void Add(std::span<const PathStatistics> paths);

  // What `live` and the rows here are together: one entry a path, those without a live one "gone".
  std::vector<PathStatistics> Sum(std::vector<PathStatistics> live) const;

 private:
  mutable std::mutex mutex_;
  std::deque<PathStatistics> rows_;
};

}  // namespace mooncake
