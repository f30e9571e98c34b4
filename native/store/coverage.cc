#include "store/coverage.h"

#include <algorithm>
#include <iterator>

#include "base/check.h"

namespace mooncake::store {

std::optional<uint64_t> Coverage::Claim(uint64_t begin, uint64_t end) {
  if (begin >= end) return std::nullopt;
  auto next = claimed_.upper_bound(begin);
  auto before = next == claimed_.begin() ? claimed_.end() : std::prev(next);
  if (before != claimed_.end() && before->second > begin) return begin;
  if (next != claimed_.end() && next->first < end) return next->first;
  if (next != claimed_.end() && next->first == end) {
    end = next->second;
    claimed_.erase(next);
  }
  if (before != claimed_.end() && before->second == begin) {
    before->second = end;
  } else {
    claimed_.emplace(begin, end);
  }
  return std::nullopt;
}

void Coverage::Return(uint64_t begin, uint64_t end) {
  if (begin >= end) return;
  const auto around = std::prev(claimed_.upper_bound(begin));
  const auto [first, last] = *around;
  MC_CHECK(first <= begin && end <= last, "[%lu, %lu) is not claimed", begin, end);
  claimed_.erase(around);
  if (first < begin) claimed_.emplace(first, begin);
  if (end < last) claimed_.emplace(end, last);
}

std::optional<uint64_t> Coverage::FirstGap(uint64_t end) const {
  if (end == 0) return std::nullopt;
  if (claimed_.empty() || claimed_.begin()->first > 0) return 0;
  const uint64_t covered = claimed_.begin()->second;
  return covered < end ? std::optional(covered) : std::nullopt;
}

}  // namespace mooncake::store
