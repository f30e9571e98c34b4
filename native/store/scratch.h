// ScratchPool: registered memory for headers and bounces, kept from call to call: to register
// memory costs more than to move a small object.
//
// Thread safety: a pool may be used by any thread; a Scratch has one owner.
// Ownership: the pool outlives what was taken from it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "store/registration.h"

namespace mooncake::store {

class ScratchPool {
 public:
  explicit ScratchPool(Engine& engine) : engine_(engine) {}
  ScratchPool(const ScratchPool&) = delete;
  ScratchPool& operator=(const ScratchPool&) = delete;

 private:
  struct Block {
    Block(Engine& engine, uint64_t size_bytes)
        : memory(new uint8_t[size_bytes]),
          bytes(size_bytes),
          registration(engine, memory.get(), size_bytes) {}
    const std::unique_ptr<uint8_t[]> memory;
    const uint64_t bytes;
    const Registration registration;
  };

 public:
  // Some of the pool's memory; goes back to it with this.
  class Scratch {
   public:
    Scratch() = default;
    Scratch(ScratchPool* pool, std::unique_ptr<Block> block)
        : pool_(pool), block_(std::move(block)) {}
    Scratch(Scratch&&) = default;
    Scratch& operator=(Scratch&& other) noexcept {
      std::swap(pool_, other.pool_);
      std::swap(block_, other.block_);
      return *this;
    }
    ~Scratch() {
      if (block_ != nullptr) pool_->Return(std::move(block_));
    }

    uint8_t* data() const { return block_->memory.get(); }
    uint64_t size_bytes() const { return block_->bytes; }
    const Status& status() const { return block_->registration.status(); }

   private:
    ScratchPool* pool_ = nullptr;
    std::unique_ptr<Block> block_;
  };

  // At least so many bytes. `status` of it: whether they could be registered.
  Scratch Take(uint64_t bytes);

 private:
  void Return(std::unique_ptr<Block> block);

  Engine& engine_;
  std::mutex mutex_;
  std::vector<std::unique_ptr<Block>> idle_;
  uint64_t idle_bytes_ = 0;
};

// Hands out scratch memory piece by piece; all of it goes back at once.
//
// Thread safety: one thread.
class Arena {
 public:
  explicit Arena(ScratchPool& pool) : pool_(pool) {}

  // 64-byte aligned with the block, valid as long as this.
  uint8_t* Take(uint64_t bytes);
  uint64_t taken_bytes() const { return taken_bytes_; }
  // Why memory that was taken cannot be used.
  const Status& status() const { return status_; }

 private:
  ScratchPool& pool_;
  std::vector<ScratchPool::Scratch> blocks_;
  uint64_t used_ = 0;  // of the last
  uint64_t taken_bytes_ = 0;
  Status status_;  // the first that is not Ok
};

}  // namespace mooncake::store
