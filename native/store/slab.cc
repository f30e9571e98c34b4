#include "store/slab.h"

#include <bit>
#include <cstdlib>
#include <new>
#include <utility>

#include "base/check.h"

namespace mooncake::store {
namespace {

constexpr size_t kPageHeader = 64;

uint32_t& LinkIn(void* piece) { return *static_cast<uint32_t*>(piece); }

}  // namespace

Slab::~Slab() {
  for (void* region : regions_) std::free(region);
  while (large_ != nullptr) ::operator delete(std::exchange(large_, large_->next));
}

template <typename T>
void Slab::Link(T*& head, T* item) {
  item->previous = nullptr;
  item->next = head;
  if (head != nullptr) head->previous = item;
  head = item;
}

template <typename T>
void Slab::Unlink(T*& head, T* item) {
  (item->previous != nullptr ? item->previous->next : head) = item->next;
  if (item->next != nullptr) item->next->previous = item->previous;
  item->previous = item->next = nullptr;
}

// Steps of 8 bytes up to kFine, then eight classes a power of two.
int Slab::ClassOf(size_t bytes) {
  if (bytes <= kFine) return static_cast<int>((bytes + 7) / 8);
  const int top = std::bit_width(bytes - 1) - 1;
  const int eighth = static_cast<int>((bytes - 1) >> (top - 3)) - 8;
  return 65 + (top - 9) * 8 + eighth;
}

size_t Slab::SizeOf(int size_class) {
  if (size_class <= 64) return size_class * 8;
  const int top = (size_class - 65) / 8 + 9, eighth = (size_class - 65) % 8;
  return static_cast<size_t>(9 + eighth) << (top - 3);
}

Slab::Page* Slab::PageOf(uint8_t* piece) {
  return reinterpret_cast<Page*>(reinterpret_cast<uintptr_t>(piece) & ~(kPage - 1));
}

uint8_t* Slab::Allocate(size_t bytes) {
  if (bytes > kLargest) {
    used_ += bytes, held_ += bytes;
    auto* large = static_cast<Large*>(::operator new(sizeof(Large) + bytes));
    Link(large_, large);
    return reinterpret_cast<uint8_t*>(large + 1);
  }
  const int size_class = ClassOf(bytes > 0 ? bytes : 1);
  Page* page = open_[size_class] != nullptr ? open_[size_class] : TakePage(size_class);
  auto* base = reinterpret_cast<uint8_t*>(page);
  const uint32_t at = page->free != 0 ? page->free : page->fresh;
  if (page->free != 0) {
    page->free = LinkIn(base + at);
  } else {
    const uint32_t next = at + page->size;
    page->fresh = next + page->size <= kPage ? next : 0;
  }
  ++page->used;
  used_ += page->size;
  if (page->free == 0 && page->fresh == 0) Unlink(open_[size_class], page);
  return base + at;
}

void Slab::Free(uint8_t* piece, size_t bytes) {
  if (bytes > kLargest) {
    used_ -= bytes, held_ -= bytes;
    Large* large = reinterpret_cast<Large*>(piece) - 1;
    Unlink(large_, large);
    ::operator delete(large);
    return;
  }
  const int size_class = ClassOf(bytes > 0 ? bytes : 1);
  Page* page = PageOf(piece);
  MC_CHECK(page->size == SizeOf(size_class) && page->used > 0, "a piece of %zu bytes", bytes);
  const bool was_full = page->free == 0 && page->fresh == 0;
  LinkIn(piece) = page->free;
  page->free = static_cast<uint32_t>(piece - reinterpret_cast<uint8_t*>(page));
  --page->used;
  used_ -= page->size;
  if (was_full) Link(open_[size_class], page);
  // One page without pieces is kept for each class, so that none is cut again and again.
  if (page->used > 0 || (open_[size_class] == page && page->next == nullptr)) return;
  Unlink(open_[size_class], page);
  Link(unused_, page);
}

Slab::Page* Slab::TakePage(int size_class) {
  if (unused_ == nullptr) AddRegion();
  Page* page = unused_;
  Unlink(unused_, page);
  const auto size = static_cast<uint32_t>(SizeOf(size_class));
  *page = Page{nullptr, nullptr, size, 0, 0, kPageHeader};
  Link(open_[size_class], page);
  return page;
}

void Slab::AddRegion() {
  void* region = std::aligned_alloc(kPage, kRegion);
  if (region == nullptr) throw std::bad_alloc();
  regions_.push_back(region);
  held_ += kRegion;
  for (size_t at = 0; at < kRegion; at += kPage) {
    auto* page = reinterpret_cast<Page*>(static_cast<uint8_t*>(region) + at);
    *page = Page{};
    Link(unused_, page);
  }
}

void Slab::Check() const {
  for (int size_class = 0; size_class < kClasses; ++size_class) {
    for (const Page* page = open_[size_class]; page != nullptr; page = page->next) {
      MC_CHECK(page->size == SizeOf(size_class), "a page of %u bytes in class %d", page->size,
               size_class);
      MC_CHECK(page->free != 0 || page->fresh != 0, "a full page is open");
      MC_CHECK(page->next == nullptr || page->next->previous == page, "pages of %u", page->size);
    }
  }
  MC_CHECK(used_ <= held_, "more is used than there is");
}

}  // namespace mooncake::store
