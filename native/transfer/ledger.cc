#include "transfer/ledger.h"

#include <algorithm>
#include <utility>

namespace mooncake {
namespace {

// Adds `path` to the entry of the same path, or as a new one.
void Merge(std::vector<PathStatistics>& sums, PathStatistics path) {
  const auto same = std::find_if(sums.begin(), sums.end(),
                                 [&](const auto& sum) { return IsSamePath(sum, path); });
  if (same == sums.end()) {
    sums.push_back(std::move(path));
    return;
  }
  // A path that is in use says more of the present than one that ended.
  if (same->state == "gone") std::swap(*same, path);
  AddCounts(*same, path);
}

}  // namespace

bool IsSamePath(const PathStatistics& a, const PathStatistics& b) {
  return a.peer == b.peer && a.transport == b.transport && a.local == b.local &&
         a.remote == b.remote;
}

void AddCounts(PathStatistics& sum, const PathStatistics& part) {
  sum.read_bytes += part.read_bytes;
  sum.written_bytes += part.written_bytes;
  sum.slices += part.slices;
  sum.resent_slices += part.resent_slices;
  sum.failures += part.failures;
  sum.quarantines += part.quarantines;
}

void Ledger::Add(std::span<const PathStatistics> paths) {
  const std::lock_guard lock(mutex_);
  for (PathStatistics row : paths) {
    row.state = "gone";
    row.connections = 0;
    row.in_flight_bytes = 0;
    row.rate_bytes_per_s = 0;
    const auto same = std::find_if(rows_.begin(), rows_.end(),
                                   [&](const auto& old) { return IsSamePath(old, row); });
    if (same != rows_.end()) {
      AddCounts(row, *same);
      rows_.erase(same);
    }
    rows_.push_back(std::move(row));
    if (rows_.size() > kRows) rows_.pop_front();
  }
}

std::vector<PathStatistics> Ledger::Sum(std::vector<PathStatistics> live) const {
  std::vector<PathStatistics> sums;
  for (PathStatistics& path : live) Merge(sums, std::move(path));
  const std::lock_guard lock(mutex_);
  for (const PathStatistics& row : rows_) Merge(sums, row);
  return sums;
}

}  // namespace mooncake
