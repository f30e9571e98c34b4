// CudaDriver: the part of the CUDA driver API that moving bytes needs, found at run time. Nothing
// of CUDA is needed to build this or to run it on a host without a GPU.
//
// Thread safety: all methods may be called by any thread. A stream belongs to the device on which
// it was made, and is used between OnDevice's start and end.
// Ownership: one a process, never unloaded. It holds the primary context of every device that was
// used, the one that PyTorch and the CUDA runtime use too.
// Source of names, types and numbers: CUDA driver API reference; all are part of its stable ABI.
#pragma once

#include <cstdint>
#include <map>
#include <mutex>

#include "base/status.h"

namespace mooncake {

class CudaDriver {
 public:
  using Stream = void*;

  // Loads libcuda.so.1 when first called. kSystem, saying what is missing, where that fails.
  static Result<CudaDriver*> Get();

  // The device that all of this memory is on. kInvalidArgument when it is on none.
  Result<int> DeviceOf(uint64_t address, uint64_t size_bytes);

  // Makes the calling thread use a device, until it is destroyed.
  class OnDevice {
   public:
    OnDevice(CudaDriver& driver, int device);
    ~OnDevice();
    OnDevice(const OnDevice&) = delete;
    OnDevice& operator=(const OnDevice&) = delete;
    const Status& status() const { return status_; }

   private:
    CudaDriver& driver_;
    const Status status_;
  };

  // REQUIRES, for all below: an OnDevice whose status is ok.

  // Page-locked host memory, for all devices. kOutOfSpace when there is not so much.
  Result<uint8_t*> AllocatePinned(uint64_t size_bytes);
  void FreePinned(uint8_t* memory);

  // Not ordered with any other stream.
  Result<Stream> CreateStream();
  void DestroyStream(Stream stream);

  // Have `stream` copy. The host memory must be pinned, and neither side be touched before
  // Synchronize has returned.
  Status CopyToHost(uint8_t* target, uint64_t source, uint64_t length, Stream stream);
  Status CopyToDevice(uint64_t target, const uint8_t* source, uint64_t length, Stream stream);

  // Blocks until all that `stream` was given has been done.
  Status Synchronize(Stream stream);

 private:
  using CuResult = int;
  using Device = int;
  using Context = void*;
  using Address = unsigned long long;

  struct Calls {
    CuResult (*init)(unsigned flags);
    CuResult (*error_name)(CuResult, const char** text);
    CuResult (*error_text)(CuResult, const char** text);
    CuResult (*device)(Device*, int ordinal);
    CuResult (*retain_primary)(Context*, Device);
    CuResult (*push)(Context);
    CuResult (*pop)(Context*);
    CuResult (*attributes)(unsigned count, int* attributes, void** data, Address);
    CuResult (*host_alloc)(void** memory, size_t, unsigned flags);
    CuResult (*free_host)(void* memory);
    CuResult (*create_stream)(Stream*, unsigned flags);
    CuResult (*destroy_stream)(Stream);
    CuResult (*synchronize)(Stream);
    CuResult (*to_host)(void* target, Address source, size_t, Stream);
    CuResult (*to_device)(Address target, const void* source, size_t, Stream);
  };

  explicit CudaDriver(const Calls& calls) : calls_(calls) {}
  static Result<Calls> Load();
  Status Explain(CuResult code, const char* what) const;
  Result<int> DeviceOfByte(uint64_t address);
  Status Push(int device);
  Result<Context> ContextOf(int device);

  const Calls calls_;
  std::mutex mutex_;
  std::map<int, Context> contexts_;  // retained
};

}  // namespace mooncake
