// Slab: pieces of memory of any size for records by the million: 8 bytes of rounding at most below
// 512 bytes, an eighth above, and no header. Pages whose pieces are all free serve other sizes.
//
// Thread safety: none; one owner. What it took from the system it keeps.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

namespace mooncake::store {

class Slab {
 public:
  Slab() = default;
  Slab(const Slab&) = delete;
  Slab& operator=(const Slab&) = delete;
  ~Slab();

  // Aligned to 8 bytes.
  uint8_t* Allocate(size_t bytes);
  // REQUIRES: `piece` was allocated with the same `bytes`.
  void Free(uint8_t* piece, size_t bytes);

  uint64_t used_bytes() const { return used_; }  // rounded up
  uint64_t held_bytes() const { return held_; }  // taken from the system

  // Ends the process if an invariant does not hold. Linear; for tests.
  void Check() const;

 private:
  static constexpr size_t kPage = 64 * 1024, kRegion = 16 * kPage;
  static constexpr size_t kFine = 512, kLargest = 16 * 1024;  // above: straight from the system
  static constexpr int kClasses = 65 + 5 * 8;

  // At the start of each page.
  struct Page {
    Page *previous, *next;  // of the pages of its class that have room, or of the unused ones
    uint32_t size, used;    // of a piece; count of pieces
    uint32_t free, fresh;  // offsets: of the first freed piece, and of what was never used; 0: none
  };

  // Before a piece that is straight from the system.
  struct Large {
    Large *previous, *next;
  };

  static int ClassOf(size_t bytes);
  static size_t SizeOf(int size_class);
  static Page* PageOf(uint8_t* piece);
  Page* TakePage(int size_class);
  void AddRegion();
  template <typename T>
  static void Link(T*& head, T* item);
  template <typename T>
  static void Unlink(T*& head, T* item);

  std::array<Page*, kClasses> open_{};  // pages with room, by class
  Page* unused_ = nullptr;
  Large* large_ = nullptr;
  std::vector<void*> regions_;
  uint64_t used_ = 0, held_ = 0;
};

}  // namespace mooncake::store
