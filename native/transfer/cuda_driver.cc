#include "transfer/cuda_driver.h"

#include <dlfcn.h>

#include <cstdio>
#include <memory>
#include <string>

namespace mooncake {
namespace {

constexpr int kSuccess = 0;
constexpr int kOutOfMemory = 2;        // CUDA_ERROR_OUT_OF_MEMORY
constexpr int kMemoryType = 2;         // CU_POINTER_ATTRIBUTE_MEMORY_TYPE
constexpr int kDeviceOrdinal = 9;      // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
constexpr unsigned kHostMemory = 1;    // CU_MEMORYTYPE_HOST
constexpr unsigned kDeviceMemory = 2;  // CU_MEMORYTYPE_DEVICE
constexpr unsigned kPortable = 1;      // CU_MEMHOSTALLOC_PORTABLE
constexpr unsigned kNonBlocking = 1;   // CU_STREAM_NON_BLOCKING

// Finds functions by name; remembers the first that is missing.
class Library {
 public:
  explicit Library(void* handle) : handle_(handle) {}

  template <typename Function>
  void Find(const char* name, Function& function) {
    function = reinterpret_cast<Function>(dlsym(handle_, name));
    if (function == nullptr && missing_.empty()) missing_ = name;
  }
  const std::string& missing() const { return missing_; }

 private:
  void* const handle_;
  std::string missing_;
};

std::string Hex(uint64_t address) {
  char text[32];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  return text;
}

}  // namespace

Result<CudaDriver*> CudaDriver::Get() {
  static std::mutex mutex;
  static CudaDriver* driver = nullptr;
  const std::lock_guard lock(mutex);
  if (driver != nullptr) return driver;
  auto calls = Load();
  if (!calls.ok()) return calls.status();
  auto loaded = std::unique_ptr<CudaDriver>(new CudaDriver(calls.value()));
  MC_RETURN_IF_ERROR(loaded->Explain(calls.value().init(0), "cuInit"));
  return driver = loaded.release();
}

Result<CudaDriver::Calls> CudaDriver::Load() {
  void* const handle = dlopen("libcuda.so.1", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    return Status(Code::kSystem, std::string("memory of a GPU needs the CUDA driver: ") +
                                     dlerror() + "; install the driver of this host's NVIDIA GPU");
  }
  Calls calls{};
  Library library(handle);
  library.Find("cuInit", calls.init);
  library.Find("cuGetErrorName", calls.error_name);
  library.Find("cuGetErrorString", calls.error_text);
  library.Find("cuDeviceGet", calls.device);
  library.Find("cuDevicePrimaryCtxRetain", calls.retain_primary);
  library.Find("cuCtxPushCurrent_v2", calls.push);
  library.Find("cuCtxPopCurrent_v2", calls.pop);
  library.Find("cuPointerGetAttributes", calls.attributes);
  library.Find("cuMemHostAlloc", calls.host_alloc);
  library.Find("cuMemFreeHost", calls.free_host);
  library.Find("cuStreamCreate", calls.create_stream);
  library.Find("cuStreamDestroy_v2", calls.destroy_stream);
  library.Find("cuStreamSynchronize", calls.synchronize);
  library.Find("cuMemcpyDtoHAsync_v2", calls.to_host);
  library.Find("cuMemcpyHtoDAsync_v2", calls.to_device);
  if (library.missing().empty()) return calls;
  dlclose(handle);
  return Status(Code::kSystem, "libcuda.so.1 has no " + library.missing() +
                                   "; a driver for CUDA 7.0 or newer is needed");
}

Status CudaDriver::Explain(CuResult code, const char* what) const {
  if (code == kSuccess) return Status::Ok();
  const char* name = nullptr;
  const char* text = nullptr;
  calls_.error_name(code, &name);
  calls_.error_text(code, &text);
  std::string message = std::string(what) + ": " + (name != nullptr ? name : "error") + " (" +
                        std::to_string(code) + ")";
  if (text != nullptr) message += std::string(", ") + text;
  return Status(code == kOutOfMemory ? Code::kOutOfSpace : Code::kSystem, std::move(message));
}

Result<int> CudaDriver::DeviceOf(uint64_t address, uint64_t size_bytes) {
  if (size_bytes == 0 || address > UINT64_MAX - size_bytes) {
    return Status(Code::kInvalidArgument, std::to_string(size_bytes) + " bytes at " + Hex(address) +
                                              ": no range of memory");
  }
  auto first = DeviceOfByte(address);
  if (!first.ok()) return first;
  auto last = DeviceOfByte(address + size_bytes - 1);
  if (!last.ok() || last.value() == first.value()) return last;
  return Status(Code::kInvalidArgument, std::to_string(size_bytes) + " bytes at " + Hex(address) +
                                            " begin on GPU " + std::to_string(first.value()) +
                                            " and end on GPU " + std::to_string(last.value()) +
                                            "; register each GPU's memory for itself");
}

Result<int> CudaDriver::DeviceOfByte(uint64_t address) {
  unsigned type = 0;
  int device = -1;
  int attributes[] = {kMemoryType, kDeviceOrdinal};
  void* data[] = {&type, &device};
  MC_RETURN_IF_ERROR(
      Explain(calls_.attributes(2, attributes, data, address), "cuPointerGetAttributes"));
  if (type == kDeviceMemory) return device;
  return Status(Code::kInvalidArgument,
                Hex(address) + (type == kHostMemory ? " is host memory; register it as such"
                                                    : " is not memory that the CUDA driver knows"));
}

Result<CudaDriver::Context> CudaDriver::ContextOf(int device) {
  const std::lock_guard lock(mutex_);
  const auto found = contexts_.find(device);
  if (found != contexts_.end()) return found->second;
  Device handle = 0;
  MC_RETURN_IF_ERROR(Explain(calls_.device(&handle, device), "cuDeviceGet"));
  Context context = nullptr;
  MC_RETURN_IF_ERROR(Explain(calls_.retain_primary(&context, handle), "cuDevicePrimaryCtxRetain"));
  contexts_.emplace(device, context);
  return context;
}

Status CudaDriver::Push(int device) {
  const auto context = ContextOf(device);
  if (!context.ok()) return context.status();
  return Explain(calls_.push(context.value()), "cuCtxPushCurrent");
}

CudaDriver::OnDevice::OnDevice(CudaDriver& driver, int device)
    : driver_(driver), status_(driver.Push(device)) {}

CudaDriver::OnDevice::~OnDevice() {
  Context popped = nullptr;
  if (status_.ok()) driver_.calls_.pop(&popped);
}

Result<uint8_t*> CudaDriver::AllocatePinned(uint64_t size_bytes) {
  void* memory = nullptr;
  MC_RETURN_IF_ERROR(Explain(calls_.host_alloc(&memory, size_bytes, kPortable), "cuMemHostAlloc"));
  return static_cast<uint8_t*>(memory);
}

void CudaDriver::FreePinned(uint8_t* memory) { calls_.free_host(memory); }

Result<CudaDriver::Stream> CudaDriver::CreateStream() {
  Stream stream = nullptr;
  MC_RETURN_IF_ERROR(Explain(calls_.create_stream(&stream, kNonBlocking), "cuStreamCreate"));
  return stream;
}

void CudaDriver::DestroyStream(Stream stream) { calls_.destroy_stream(stream); }

Status CudaDriver::CopyToHost(uint8_t* target, uint64_t source, uint64_t length, Stream stream) {
  return Explain(calls_.to_host(target, source, length, stream), "cuMemcpyDtoHAsync");
}

Status CudaDriver::CopyToDevice(uint64_t target, const uint8_t* source, uint64_t length,
                                Stream stream) {
  return Explain(calls_.to_device(target, source, length, stream), "cuMemcpyHtoDAsync");
}

Status CudaDriver::Synchronize(Stream stream) {
  return Explain(calls_.synchronize(stream), "cuStreamSynchronize");
}

}  // namespace mooncake
