// ChunkedArray: a growing array that never moves what is in it, for records by the million. Growing
// costs one chunk, so that neither a copy nor a doubling is ever seen; at most a chunk is unused.
//
// Thread safety: none; one owner. References stay valid until it is destroyed.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

namespace mooncake {

template <typename T>
class ChunkedArray {
 public:
  static constexpr uint32_t kChunkBits = 12;
  static constexpr uint32_t kChunk = 1u << kChunkBits;

  ChunkedArray() = default;
  ChunkedArray(ChunkedArray&&) = default;
  ChunkedArray& operator=(ChunkedArray&&) = default;

  // REQUIRES: index < room().
  T& operator[](uint32_t index) { return chunks_[index >> kChunkBits][index & (kChunk - 1)]; }
  const T& operator[](uint32_t index) const {
    return chunks_[index >> kChunkBits][index & (kChunk - 1)];
  }

  // How many elements are there; those that nobody has set are T{}.
  uint64_t room() const { return chunks_.size() << kChunkBits; }

  // Makes room for `index`, in whole chunks.
  void Cover(uint32_t index) {
    while (index >= room()) chunks_.push_back(std::make_unique<T[]>(kChunk));
  }

 private:
  std::vector<std::unique_ptr<T[]>> chunks_;
};

}  // namespace mooncake
