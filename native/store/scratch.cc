#include "store/scratch.h"

#include <algorithm>
#include <bit>

namespace mooncake::store {
namespace {

constexpr uint64_t kLeastBytes = 64 << 10;
constexpr uint64_t kIdleBytes = 8 << 20;  // more is given back
constexpr uint64_t kGrain = 64;

}  // namespace

ScratchPool::Scratch ScratchPool::Take(uint64_t bytes) {
  {
    std::lock_guard lock(mutex_);
    const auto fits = [bytes](const auto& block) { return block->bytes >= bytes; };
    const auto found = std::ranges::find_if(idle_, fits);
    if (found != idle_.end()) {
      auto block = std::move(*found);
      idle_.erase(found);
      idle_bytes_ -= block->bytes;
      return {this, std::move(block)};
    }
  }
  const bool is_kept = bytes <= kIdleBytes;
  const uint64_t size_bytes = std::max(is_kept ? std::bit_ceil(bytes) : bytes, kLeastBytes);
  return {this, std::make_unique<Block>(engine_, size_bytes)};
}

void ScratchPool::Return(std::unique_ptr<Block> block) {
  std::lock_guard lock(mutex_);
  if (!block->registration.status().ok() || idle_bytes_ + block->bytes > kIdleBytes) return;
  idle_bytes_ += block->bytes;
  idle_.push_back(std::move(block));
}

uint8_t* Arena::Take(uint64_t bytes) {
  bytes = (bytes + kGrain - 1) / kGrain * kGrain;
  if (blocks_.empty() || blocks_.back().size_bytes() - used_ < bytes) {
    blocks_.push_back(pool_.Take(bytes));
    used_ = 0;
    if (status_.ok()) status_ = blocks_.back().status();
  }
  uint8_t* const taken = blocks_.back().data() + used_;
  used_ += bytes;
  taken_bytes_ += bytes;
  return taken;
}

}  // namespace mooncake::store
