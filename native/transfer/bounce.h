// Bounce: pinned host memory that bytes pass through between GPUs and transports, in two halves, so
// that one is copied from or to the GPU while the other is on its way.
//
// Thread safety: one thread at a time; Take may be called by any.
// Ownership: taken from and given back to a pool of the process. Destroying one waits for its
// copies.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/status.h"
#include "transfer/cuda_driver.h"
#include "transfer/types.h"

namespace mooncake {

// Bytes that are at the same time at `address` on a GPU and at `offset` of a half.
struct DeviceCopy {
  int device = 0;
  uint64_t address = 0;
  uint64_t offset = 0;
  uint64_t length = 0;
};

class Bounce {
 public:
  static constexpr uint64_t kHalfBytes = 4u << 20;

  struct GiveBack {
    void operator()(Bounce* bounce) const;
  };
  using Taken = std::unique_ptr<Bounce, GiveBack>;

  // One that is idle, or a new one, pinned by `device`. kOutOfSpace when there is not so much.
  static Result<Taken> Take(CudaDriver& driver, int device);
  ~Bounce();

  uint64_t address(int half) const {
    return reinterpret_cast<uint64_t>(memory_) + half * kHalfBytes;
  }

  // Starts copies from the GPUs into a half (kWrite) or from it to them (kRead). They are under way
  // until Wait has returned, whatever this returns.
  Status Start(int half, Op op, std::span<const DeviceCopy> copies);

  // Blocks until what was started with a half has ended. After an error the bytes are undefined.
  Status Wait(int half);

 private:
  struct Lane {  // one a device and half
    int device = 0;
    CudaDriver::Stream stream = nullptr;
    bool is_busy = false;
  };

  Bounce(CudaDriver& driver, int device) : driver_(driver), device_(device) {}
  Status Allocate();
  Result<Lane*> LaneOf(int half, int device);
  Status StartOn(int half, Op op, std::span<const DeviceCopy> copies);

  CudaDriver& driver_;
  const int device_;  // that has pinned it
  uint8_t* memory_ = nullptr;
  std::array<std::vector<Lane>, 2> lanes_;
  bool is_broken_ = false;  // an error left it in no state to be used again
};

}  // namespace mooncake
