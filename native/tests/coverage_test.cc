// What is written of an object: each byte once, and checksums from ranges in any order.
#include "store/coverage.h"

#include <algorithm>
#include <functional>
#include <random>
#include <vector>

#include "base/crc32c.h"
#include "store/chunk_sums.h"
#include "tests/test.h"

namespace mooncake::store {
namespace {

TEST(CoverageAgreesWithABitmap) {
  constexpr uint64_t kSize = 97;
  std::mt19937 random(1);
  Coverage coverage;
  std::vector<bool> taken(kSize);
  for (int round = 0; round < 20'000; ++round) {
    const uint64_t begin = random() % kSize;
    const uint64_t end = begin + random() % std::min<uint64_t>(12, kSize - begin + 1);
    const auto first = taken.begin() + begin, last = taken.begin() + end;
    const bool is_free = std::none_of(first, last, std::identity());
    const bool is_whole = std::all_of(first, last, std::identity());
    if (is_whole && random() % 2 == 0) {
      coverage.Return(begin, end);
      std::fill(first, last, false);
    } else {
      EXPECT(!coverage.Claim(begin, end).has_value() == is_free);
      if (is_free) std::fill(first, last, true);
    }
    const auto gap = std::ranges::find(taken, false) - taken.begin();
    EXPECT(coverage.FirstGap(kSize).value_or(kSize) == static_cast<uint64_t>(gap));
  }
}

TEST(ChecksumsOfRangesInAnyOrderAreThoseOfTheChunks) {
  const Shape shape{2 * kChunkBytes + 1000, kChunkBytes + 10, 0};
  std::mt19937 random(2);
  std::vector<uint8_t> bytes(shape.size_bytes);
  for (uint8_t& byte : bytes) byte = static_cast<uint8_t>(random());
  struct Cut {
    Chunk chunk;
    uint64_t offset, length;
  };
  std::vector<Cut> cuts;
  for (uint64_t at = 0; at < bytes.size();) {
    const uint64_t length = std::min<uint64_t>(1 + random() % 9000, bytes.size() - at);
    const Range range{0, length};
    ForEachCut(shape, {&range, 1}, at,
               [&](const Chunk& chunk, uint64_t, uint64_t offset, uint64_t part) {
                 cuts.push_back({chunk, offset, part});
               });
    at += length;
  }
  std::ranges::shuffle(cuts, random);
  ChunkSums sums(shape.chunk_count());
  for (const Cut& cut : cuts) {
    EXPECT(!sums.IsWhole());
    sums.Add(cut.chunk, cut.offset, cut.length, Crc32c(&bytes[cut.offset], cut.length));
  }
  EXPECT(sums.IsWhole());
  for (uint64_t at = 0; at < bytes.size();) {
    const Chunk chunk = shape.ChunkAt(at);
    EXPECT(sums.all()[chunk.index] == Crc32c(&bytes[chunk.begin], chunk.end - chunk.begin));
    at = chunk.end;
  }
}

}  // namespace
}  // namespace mooncake::store

RUN_TESTS()
