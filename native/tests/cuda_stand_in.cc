// A stand-in for libcuda.so.1, to test against where there is no GPU: two devices whose memory is
// host memory somewhere else than its addresses say. Those lie in a window without access, so
// whoever touches device memory without the driver dies. Asynchronous copies happen when their
// stream is synchronized and not before, so whoever forgets that, or uses the host side meanwhile,
// gets wrong bytes. What a real driver would take badly is kept as misuse; see stand_in_misuse.
#include <sys/mman.h>

#include <cstdint>
#include <cstring>
#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <vector>

namespace {

using Address = unsigned long long;

constexpr int kDevices = 2;
constexpr Address kDeviceBytes = 4ull << 30;
constexpr int kInvalidValue = 1, kOutOfMemory = 2, kNotInitialized = 3, kInvalidDevice = 101,
              kInvalidContext = 201, kInvalidHandle = 400;

struct Context {
  int device;
};

struct Stream {
  Context* context;
  std::vector<std::function<void()>> copies;
};

struct Failure {
  int skip;
  int code;
};

std::recursive_mutex mutex;
bool is_initialized = false;
Context contexts[kDevices] = {{0}, {1}};
thread_local std::vector<Context*> current;
uint8_t* window = nullptr;  // without access
uint8_t* bytes = nullptr;   // of the window
Address taken[kDevices] = {};
std::map<Address, Address> allocations;  // device memory: address -> size
std::map<uint8_t*, size_t> pinned;
std::map<std::string, Failure> failures;
std::map<std::string, int> counts;
std::string misuse;
int pending = 0;
void (*copy_hook)() = nullptr;
using Guard = std::lock_guard<std::recursive_mutex>;

void Note(const std::string& what) {
  if (misuse.empty()) misuse = what;
}

// What every call begins with: the code that it is to fail with, or 0.
int Enter(const char* call) {
  ++counts[call];
  if (!is_initialized) return kNotInitialized;
  const auto found = failures.find(call);
  if (found == failures.end() || found->second.skip-- > 0) return 0;
  const int code = found->second.code;
  failures.erase(found);
  return code;
}

int EnterInContext(const char* call) {
  const int code = Enter(call);
  if (code == 0 && current.empty()) Note(std::string(call) + " without a context");
  return code == 0 && current.empty() ? kInvalidContext : code;
}

int DeviceOf(Address address) {
  const Address begin = reinterpret_cast<Address>(window);
  if (address < begin || address >= begin + kDevices * kDeviceBytes) return -1;
  return static_cast<int>((address - begin) / kDeviceBytes);
}

bool IsAllocated(Address address, size_t size) {
  const auto after = allocations.upper_bound(address);
  if (after == allocations.begin()) return false;
  const auto& [begin, length] = *std::prev(after);
  return address - begin <= length && size <= length - (address - begin);
}

bool IsPinned(const void* memory, size_t size) {
  const auto* at = static_cast<const uint8_t*>(memory);
  for (const auto& [begin, length] : pinned) {
    if (at >= begin && at + size <= begin + length) return true;
  }
  return false;
}

uint8_t* Bytes(Address address) { return bytes + (address - reinterpret_cast<Address>(window)); }

int Queue(const char* call, Address device, const void* host, size_t size, Stream* stream,
          std::function<void()> copy) {
  const int code = EnterInContext(call);
  if (copy_hook != nullptr) copy_hook();
  if (code != 0) return code;
  if (stream->context != current.back()) {
    Note("a stream of another context");
    return kInvalidHandle;
  }
  if (!IsAllocated(device, size)) return kInvalidValue;
  if (DeviceOf(device) != current.back()->device) Note("memory of another device");
  if (!IsPinned(host, size)) Note("host memory that is not pinned");
  stream->copies.push_back(std::move(copy));
  ++pending;
  return 0;
}

}  // namespace

extern "C" {

// --- for tests ---

// The first wrong use, or an empty text.
const char* stand_in_misuse() { return misuse.c_str(); }

// The call fails once with `code`, after `skip` more that succeed.
void stand_in_fail(const char* call, int skip, int code) {
  const Guard guard(mutex);
  failures[call] = {skip, code};
}

// Called when an asynchronous copy is queued, by the thread that queues it; null: no more.
void stand_in_on_copy(void (*hook)()) { copy_hook = hook; }

// Copies that are queued and have not happened.
int stand_in_pending() {
  const Guard guard(mutex);
  return pending;
}

int stand_in_count(const char* call) {
  const Guard guard(mutex);
  return counts[call];
}

// --- the driver ---

int cuInit(unsigned) {
  const Guard guard(mutex);
  ++counts["cuInit"];
  if (is_initialized) return 0;
  const size_t size = kDevices * kDeviceBytes;
  const auto map = [&](int access) {
    return mmap(nullptr, size, access, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  };
  window = static_cast<uint8_t*>(map(PROT_NONE));
  bytes = static_cast<uint8_t*>(map(PROT_READ | PROT_WRITE));
  is_initialized = true;
  return 0;
}

int cuGetErrorName(int code, const char** text) {
  *text = code == kOutOfMemory ? "CUDA_ERROR_OUT_OF_MEMORY" : "CUDA_ERROR_OF_STAND_IN";
  return 0;
}

int cuGetErrorString(int, const char** text) {
  *text = "the stand-in was told to";
  return 0;
}

int cuDeviceGet(int* device, int ordinal) {
  const Guard guard(mutex);
  const int code = Enter("cuDeviceGet");
  *device = ordinal;
  return code == 0 && (ordinal < 0 || ordinal >= kDevices) ? kInvalidDevice : code;
}

int cuDevicePrimaryCtxRetain(void** context, int device) {
  const Guard guard(mutex);
  const int code = Enter("cuDevicePrimaryCtxRetain");
  *context = &contexts[device];
  return code;
}

int cuCtxPushCurrent_v2(void* context) {
  const Guard guard(mutex);
  const int code = Enter("cuCtxPushCurrent_v2");
  if (code == 0) current.push_back(static_cast<Context*>(context));
  return code;
}

int cuCtxPopCurrent_v2(void** context) {
  const Guard guard(mutex);
  const int code = EnterInContext("cuCtxPopCurrent_v2");
  if (code != 0) return code;
  *context = current.back();
  current.pop_back();
  return 0;
}

int cuCtxGetCurrent(void** context) {
  *context = current.empty() ? nullptr : current.back();
  return 0;
}

int cuPointerGetAttributes(unsigned count, int* attributes, void** data, Address address) {
  const Guard guard(mutex);
  const int code = Enter("cuPointerGetAttributes");
  if (code != 0) return code;
  const bool is_device = IsAllocated(address, 1);
  const bool is_host = IsPinned(reinterpret_cast<void*>(address), 1);
  for (unsigned i = 0; i < count; ++i) {
    if (attributes[i] == 2) *static_cast<unsigned*>(data[i]) = is_device ? 2 : is_host ? 1 : 0;
    if (attributes[i] == 9) *static_cast<int*>(data[i]) = is_device ? DeviceOf(address) : -2;
  }
  return 0;
}

int cuMemAlloc_v2(Address* address, size_t size) {
  const Guard guard(mutex);
  const int code = EnterInContext("cuMemAlloc_v2");
  if (code != 0) return code;
  const int device = current.back()->device;
  if (size > kDeviceBytes - taken[device]) return kOutOfMemory;
  *address = reinterpret_cast<Address>(window) + device * kDeviceBytes + taken[device];
  taken[device] += (size / 4096 + 2) * 4096;  // never used again; then a gap
  allocations[*address] = size;
  return 0;
}

int cuMemFree_v2(Address address) {
  const Guard guard(mutex);
  const auto found = allocations.find(address);
  if (found == allocations.end()) return kInvalidValue;
  madvise(Bytes(address), found->second, MADV_DONTNEED);
  allocations.erase(found);
  return 0;
}

int cuMemcpyHtoD_v2(Address target, const void* source, size_t size) {
  const Guard guard(mutex);
  if (!IsAllocated(target, size)) return kInvalidValue;
  std::memcpy(Bytes(target), source, size);
  return 0;
}

int cuMemcpyDtoH_v2(void* target, Address source, size_t size) {
  const Guard guard(mutex);
  if (!IsAllocated(source, size)) return kInvalidValue;
  std::memcpy(target, Bytes(source), size);
  return 0;
}

int cuMemHostAlloc(void** memory, size_t size, unsigned) {
  const Guard guard(mutex);
  const int code = EnterInContext("cuMemHostAlloc");
  if (code != 0) return code;
  auto* taken_bytes = new uint8_t[size];
  pinned[taken_bytes] = size;
  *memory = taken_bytes;
  return 0;
}

int cuMemFreeHost(void* memory) {
  const Guard guard(mutex);
  const int code = EnterInContext("cuMemFreeHost");
  if (code != 0) return code;
  auto* given = static_cast<uint8_t*>(memory);
  if (pinned.erase(given) == 0) Note("freed host memory that was not pinned");
  delete[] given;
  return 0;
}

int cuStreamCreate(void** stream, unsigned) {
  const Guard guard(mutex);
  const int code = EnterInContext("cuStreamCreate");
  if (code == 0) *stream = new Stream{current.back(), {}};
  return code;
}

int cuStreamDestroy_v2(void* stream) {
  const Guard guard(mutex);
  const int code = EnterInContext("cuStreamDestroy_v2");
  if (code != 0) return code;
  auto* given = static_cast<Stream*>(stream);
  if (!given->copies.empty()) Note("destroyed a stream that copies");
  delete given;
  return 0;
}

int cuStreamSynchronize(void* stream) {
  const Guard guard(mutex);
  const int code = EnterInContext("cuStreamSynchronize");
  auto* given = static_cast<Stream*>(stream);
  if (code == 0) {
    for (const auto& copy : given->copies) copy();
  }
  pending -= static_cast<int>(given->copies.size());
  given->copies.clear();
  return code;
}

int cuMemcpyDtoHAsync_v2(void* target, Address source, size_t size, void* stream) {
  const Guard guard(mutex);
  return Queue("cuMemcpyDtoHAsync_v2", source, target, size, static_cast<Stream*>(stream),
               [=] { std::memcpy(target, Bytes(source), size); });
}

int cuMemcpyHtoDAsync_v2(Address target, const void* source, size_t size, void* stream) {
  const Guard guard(mutex);
  return Queue("cuMemcpyHtoDAsync_v2", target, source, size, static_cast<Stream*>(stream),
               [=] { std::memcpy(Bytes(target), source, size); });
}

}  // extern "C"
