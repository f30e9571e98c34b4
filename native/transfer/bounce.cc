#include "transfer/bounce.h"

#include <algorithm>
#include <mutex>

namespace mooncake {
namespace {

constexpr size_t kIdle = 4;  // kept for the next batches: 32 MiB

struct Pool {
  std::mutex mutex;
  std::vector<Bounce*> idle;
};

// Never destroyed: the driver may be gone when a process ends.
Pool& ThePool() {
  static Pool* const pool = new Pool;
  return *pool;
}

}  // namespace

void Bounce::GiveBack::operator()(Bounce* bounce) const {
  Pool& pool = ThePool();
  {
    const std::lock_guard lock(pool.mutex);
    if (!bounce->is_broken_ && pool.idle.size() < kIdle) {
      pool.idle.push_back(bounce);
      return;
    }
  }
  delete bounce;
}

Result<Bounce::Taken> Bounce::Take(CudaDriver& driver, int device) {
  Pool& pool = ThePool();
  {
    const std::lock_guard lock(pool.mutex);
    if (!pool.idle.empty()) {
      Taken taken(pool.idle.back());
      pool.idle.pop_back();
      return taken;
    }
  }
  Taken taken(new Bounce(driver, device));
  MC_RETURN_IF_ERROR(taken->Allocate());
  return taken;
}

Status Bounce::Allocate() {
  is_broken_ = true;
  const CudaDriver::OnDevice on_device(driver_, device_);
  MC_RETURN_IF_ERROR(on_device.status());
  auto memory = driver_.AllocatePinned(2 * kHalfBytes);
  if (!memory.ok()) return memory.status();
  memory_ = memory.value();
  is_broken_ = false;
  return Status::Ok();
}

Bounce::~Bounce() {
  for (const auto& lanes : lanes_) {
    for (const Lane& lane : lanes) {
      const CudaDriver::OnDevice on_device(driver_, lane.device);
      if (on_device.status().ok()) driver_.DestroyStream(lane.stream);
    }
  }
  const CudaDriver::OnDevice on_device(driver_, device_);
  if (memory_ != nullptr && on_device.status().ok()) driver_.FreePinned(memory_);
}

// Consecutive copies of one device are started together: switching devices costs.
Status Bounce::Start(int half, Op op, std::span<const DeviceCopy> copies) {
  while (!copies.empty()) {
    const int device = copies.front().device;
    const auto other = std::find_if(copies.begin(), copies.end(),
                                    [&](const DeviceCopy& c) { return c.device != device; });
    const size_t count = static_cast<size_t>(other - copies.begin());
    MC_RETURN_IF_ERROR(StartOn(half, op, copies.first(count)));
    copies = copies.subspan(count);
  }
  return Status::Ok();
}

Status Bounce::StartOn(int half, Op op, std::span<const DeviceCopy> copies) {
  const int device = copies.front().device;
  const CudaDriver::OnDevice on_device(driver_, device);
  MC_RETURN_IF_ERROR(on_device.status());
  auto lane = LaneOf(half, device);
  if (!lane.ok()) return lane.status();
  lane.value()->is_busy = true;
  const CudaDriver::Stream stream = lane.value()->stream;
  for (const DeviceCopy& copy : copies) {
    uint8_t* const host = memory_ + half * kHalfBytes + copy.offset;
    MC_RETURN_IF_ERROR(op == Op::kWrite
                           ? driver_.CopyToHost(host, copy.address, copy.length, stream)
                           : driver_.CopyToDevice(copy.address, host, copy.length, stream));
  }
  return Status::Ok();
}

Result<Bounce::Lane*> Bounce::LaneOf(int half, int device) {
  auto& lanes = lanes_[half];
  const auto found = std::find_if(lanes.begin(), lanes.end(),
                                  [&](const Lane& lane) { return lane.device == device; });
  if (found != lanes.end()) return &*found;
  auto stream = driver_.CreateStream();
  if (!stream.ok()) return stream.status();
  return &lanes.emplace_back(Lane{device, stream.value()});
}

Status Bounce::Wait(int half) {
  Status status;
  for (Lane& lane : lanes_[half]) {
    if (!lane.is_busy) continue;
    lane.is_busy = false;
    const CudaDriver::OnDevice on_device(driver_, lane.device);
    Status one = on_device.status().ok() ? driver_.Synchronize(lane.stream) : on_device.status();
    if (one.ok()) continue;
    is_broken_ = true;
    status = std::move(one);
  }
  return status;
}

}  // namespace mooncake
