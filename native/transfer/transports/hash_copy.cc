#include "transfer/transports/hash_copy.h"

#include <algorithm>
#include <cstring>

#include "base/crc32c.h"
#include "base/crc32c_fold.h"
#include "transfer/transports/stream_copy.h"

namespace mooncake {
namespace {

constexpr size_t kHashedBytes = 8192;  // are still in the innermost cache

// The target is hashed, not the source, which may be changing: what was hashed is what was copied.
uint32_t HashInBlocks(uint8_t* target, const uint8_t* source, size_t size, uint32_t crc) {
  for (size_t done = 0; done < size; done += kHashedBytes) {
    const size_t step = std::min(kHashedBytes, size - done);
    std::memcpy(target + done, source + done, step);
    crc = Crc32c(target + done, step, crc);
  }
  return crc;
}

#ifdef MC_CRC_FOLDS

template <crc32c::FoldCopy kCopy>
uint32_t HashByFolding(uint8_t* target, const uint8_t* source, size_t size, uint32_t crc) {
  const size_t head = (0 - reinterpret_cast<uintptr_t>(target)) % 64;
  const size_t lines = (size - head) / 64 * 64;
  const size_t tail = size - head - lines;
  crc = HashInBlocks(target, source, head, crc);
  crc = crc32c::Fold<kCopy>(target + head, source + head, lines, crc);
  return HashInBlocks(target + head + lines, source + head + lines, tail, crc);
}

#endif

}  // namespace

uint32_t HashCopy(uint8_t* target, const uint8_t* source, size_t size, uint32_t crc,
                  [[maybe_unused]] bool is_streamed) {
#ifdef MC_CRC_FOLDS
  if (size >= crc32c::kFoldBytes && crc32c::CpuFolds()) {
    using crc32c::FoldCopy;
    const auto hash =
        is_streamed ? &HashByFolding<FoldCopy::kStreamed> : &HashByFolding<FoldCopy::kCached>;
    return hash(target, source, size, crc);
  }
#endif
  return HashInBlocks(target, source, size, crc);
}

void HashPieces(std::span<const Piece> pieces, std::span<uint32_t> checksums) {
  for (size_t i = 0; i < checksums.size(); ++i) {
    checksums[i] =
        Crc32c(reinterpret_cast<const void*>(pieces[i].address), pieces[i].length, checksums[i]);
  }
}

}  // namespace mooncake
