#include "store/chunk_sums.h"

#include <iterator>

#include "base/crc32c.h"

namespace mooncake::store {

void ChunkSums::Add(const Chunk& chunk, uint64_t offset, uint64_t length, uint32_t checksum) {
  uint64_t begin = offset;
  Run run{offset + length, checksum};
  if (const auto next = runs_.find(run.end); next != runs_.end() && run.end < chunk.end) {
    const uint64_t more = next->second.end - run.end;
    run = {next->second.end, Crc32cCombine(run.checksum, next->second.checksum, more)};
    runs_.erase(next);
  }
  if (const auto after = runs_.upper_bound(begin); after != runs_.begin()) {
    const auto before = std::prev(after);
    if (before->second.end == begin && before->first >= chunk.begin) {
      run.checksum = Crc32cCombine(before->second.checksum, run.checksum, run.end - begin);
      begin = before->first;
      runs_.erase(before);
    }
  }
  if (begin == chunk.begin && run.end == chunk.end) {
    sums_[chunk.index] = run.checksum;
    ++whole_;
  } else {
    runs_.emplace(begin, run);
  }
}

}  // namespace mooncake::store
