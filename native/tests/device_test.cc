// Batches whose local memory is on GPUs, over a stand-in for the CUDA driver (cuda_stand_in.cc).
#include <dlfcn.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <numeric>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/crc32c.h"
#include "tests/test.h"
#include "transfer/engine.h"

namespace mooncake {
namespace {

using Bytes = std::vector<uint8_t>;

constexpr SameHost kBothWays[] = {SameHost::kShm, SameHost::kNetwork};
constexpr uint64_t kHalfBytes = 4u << 20;  // what is staged at once
constexpr uint64_t kManyBytes = 3 * kHalfBytes + 1234;

// The driver, found as the engine finds it.
class Driver {
 public:
  template <typename... Arguments>
  int Call(const char* name, Arguments... arguments) const {
    using Function = int (*)(Arguments...);
    return reinterpret_cast<Function>(Symbol(name))(arguments...);
  }
  std::string misuse() const {
    return reinterpret_cast<const char* (*)()>(Symbol("stand_in_misuse"))();
  }
  int count(const char* call) const { return Call("stand_in_count", call); }
  void Fail(const char* call, int skip, int code) const { Call("stand_in_fail", call, skip, code); }

 private:
  void* Symbol(const char* name) const {
    void* const symbol = dlsym(handle_, name);
    MC_CHECK(symbol != nullptr, "%s", dlerror());
    return symbol;
  }
  void* const handle_ = [] {
    void* const handle = dlopen("libcuda.so.1", RTLD_NOW);
    MC_CHECK(handle != nullptr, "%s; LD_LIBRARY_PATH must lead to the stand-in", dlerror());
    return handle;
  }();
};

const Driver& TheDriver() {
  static const Driver driver;
  return driver;
}

// Memory of a GPU.
class DeviceMemory {
 public:
  DeviceMemory(int device, uint64_t size) : size_(size) {
    void* context = nullptr;
    int failed = TheDriver().Call("cuInit", 0u);
    failed |= TheDriver().Call("cuDevicePrimaryCtxRetain", &context, device);
    failed |= TheDriver().Call("cuCtxPushCurrent_v2", context);
    failed |= TheDriver().Call("cuMemAlloc_v2", &address_, static_cast<size_t>(size));
    failed |= TheDriver().Call("cuCtxPopCurrent_v2", &context);
    MC_CHECK(failed == 0, "the stand-in has no memory");
  }
  DeviceMemory(int device, const Bytes& content) : DeviceMemory(device, content.size()) {
    TheDriver().Call("cuMemcpyHtoD_v2", address_, static_cast<const void*>(content.data()),
                     content.size());
  }
  ~DeviceMemory() { Free(); }
  DeviceMemory(const DeviceMemory&) = delete;
  DeviceMemory& operator=(const DeviceMemory&) = delete;

  void Free() const { TheDriver().Call("cuMemFree_v2", address_); }
  uint64_t address() const { return address_; }
  uint64_t size() const { return size_; }
  Bytes content() const {
    Bytes content(size_);
    TheDriver().Call("cuMemcpyDtoH_v2", static_cast<void*>(content.data()), address_,
                     content.size());
    return content;
  }

 private:
  unsigned long long address_ = 0;
  const uint64_t size_;
};

// Runs `hook` when the copy after `skip` more is queued.
class OnCopy {
 public:
  OnCopy(int skip, std::function<void()> hook) {
    skip_ = skip;
    hook_ = std::move(hook);
    TheDriver().Call(
        "stand_in_on_copy", +[] {
          if (skip_-- == 0) hook_();
        });
  }
  ~OnCopy() { TheDriver().Call("stand_in_on_copy", static_cast<void (*)()>(nullptr)); }

 private:
  static inline int skip_;
  static inline std::function<void()> hook_;
};

Deadline Soon() { return Deadline::After(20); }

// Repeats after a prime number of bytes, so that bytes at other offsets differ.
Bytes Random(uint64_t size, uint32_t seed) {
  constexpr uint64_t kPeriod = 65'521;
  Bytes bytes(size);
  for (uint64_t i = 0; i < std::min(size, kPeriod); ++i) {
    bytes[i] = static_cast<uint8_t>((seed = seed * 1664525 + 1013904223) >> 24);
  }
  for (uint64_t done = kPeriod; done < size; done += kPeriod) {
    std::copy_n(bytes.begin(), std::min(kPeriod, size - done), bytes.begin() + done);
  }
  return bytes;
}

// An owner with a segment, and a user that has it open.
struct Pair {
  explicit Pair(SameHost same_host, uint64_t size = kManyBytes)
      : owner(Engine::Create({"127.0.0.1:0", same_host, 2}).value()),
        user(Engine::Create({"127.0.0.1:0", same_host, 2}).value()),
        segment(owner->CreateSegment(size).value()),
        remote(user->OpenSegment(owner->endpoint(), segment->id(), Soon()).value()) {}
  ~Pair() {
    EXPECT(TheDriver().misuse() == "");
    void* context = nullptr;
    TheDriver().Call("cuCtxGetCurrent", &context);
    EXPECT(context == nullptr);
  }

  void Register(const DeviceMemory& memory) const {
    EXPECT(user->RegisterDeviceBuffer(memory.address(), memory.size()).ok());
  }
  Status Execute(Op op, const std::vector<Piece>& pieces,
                 const BatchOptions& options = {Soon()}) const {
    Status status = user->Execute(op, remote, pieces, options);
    EXPECT(TheDriver().Call("stand_in_pending") == 0);
    return status;
  }
  Bytes content(uint64_t offset, uint64_t length) const {
    return Bytes(segment->data() + offset, segment->data() + offset + length);
  }

  std::shared_ptr<Engine> owner;
  std::shared_ptr<Engine> user;
  std::shared_ptr<Segment> segment;
  std::shared_ptr<RemoteSegment> remote;
};

TEST(WhatIsWrittenFromAGpuIsReadBackIntoIt) {
  for (const SameHost same_host : kBothWays) {
    const Pair pair(same_host);
    const Bytes content = Random(kManyBytes, 1);
    const DeviceMemory source(0, content), target(1, kManyBytes);
    pair.Register(source);
    pair.Register(target);
    const uint64_t length = kManyBytes - 8;  // at addresses that are no multiple of anything
    EXPECT(pair.Execute(Op::kWrite, {{source.address() + 3, 5, length}}).ok());
    EXPECT(std::equal(content.begin() + 3, content.begin() + 3 + length, pair.segment->data() + 5));
    EXPECT(pair.Execute(Op::kRead, {{target.address() + 7, 5, length}}).ok());
    const Bytes read = target.content();
    EXPECT(std::equal(content.begin() + 3, content.begin() + 3 + length, read.begin() + 7));
    EXPECT(std::all_of(read.begin(), read.begin() + 7, [](uint8_t byte) { return byte == 0; }));
    EXPECT(read.back() == 0);
  }
}

TEST(ABatchMayMixHostMemoryAndGpus) {
  for (const SameHost same_host : kBothWays) {
    const Pair pair(same_host, 16 << 20);
    const uint64_t size = 5'000'011;
    const Bytes first = Random(size, 1), second = Random(size, 2);
    Bytes host = Random(size, 3);
    const DeviceMemory gpu0(0, first), gpu1(1, second);
    pair.Register(gpu0);
    pair.Register(gpu1);
    const auto at = reinterpret_cast<uint64_t>(host.data());
    EXPECT(pair.user->RegisterBuffer(at, size).ok());
    std::vector<Piece> pieces;
    Bytes expected(3 * size);
    const uint64_t step = 100'003;
    for (uint64_t offset = 0; offset < size; offset += step) {
      const uint64_t length = std::min(step, size - offset);
      const Bytes* contents[] = {&first, &host, &second};
      const uint64_t addresses[] = {gpu0.address(), at, gpu1.address()};
      for (int i = 0; i < 3; ++i) {
        pieces.push_back({addresses[i] + offset, 3 * offset + i * length, length});
        std::copy_n(contents[i]->begin() + offset, length,
                    expected.begin() + 3 * offset + i * length);
      }
      pieces.push_back({0, 0, 0});
    }
    EXPECT(pair.Execute(Op::kWrite, pieces).ok());
    EXPECT(pair.content(0, 3 * size) == expected);
    const Bytes before = host;
    std::fill(host.begin(), host.end(), 0);
    TheDriver().Call("cuMemcpyHtoD_v2", static_cast<unsigned long long>(gpu1.address()),
                     static_cast<const void*>(host.data()), static_cast<size_t>(size));
    EXPECT(pair.Execute(Op::kRead, pieces).ok());
    EXPECT(host == before && gpu0.content() == first && gpu1.content() == second);
    EXPECT(pair.user->UnregisterBuffer(at, size).ok());
  }
}

// Cut by the halves of a bounce, or not.
TEST(BytesOfGpusHaveChecksumsToo) {
  for (const SameHost same_host : kBothWays) {
    const Pair pair(same_host);
    const Bytes content = Random(kManyBytes, 9);
    Bytes host = Random(4096, 10);
    const DeviceMemory source(0, content), target(1, kManyBytes);
    pair.Register(source);
    pair.Register(target);
    const auto at = reinterpret_cast<uint64_t>(host.data());
    EXPECT(pair.user->RegisterBuffer(at, host.size()).ok());
    const uint64_t lengths[] = {64, 4096, 0, kManyBytes - 64 - 2 * 4096, 4096};
    std::vector<uint32_t> expected;
    for (const Op op : {Op::kWrite, Op::kRead}) {
      std::vector<Piece> pieces;
      uint64_t offset = 0;
      for (const uint64_t length : lengths) {
        const uint64_t base = op == Op::kWrite ? source.address() : target.address();
        const bool is_host = pieces.size() == 4;
        pieces.push_back({is_host ? at : base + offset, offset, length});
        const uint8_t* bytes = is_host ? host.data() : content.data() + offset;
        if (op == Op::kWrite) expected.push_back(Crc32c(bytes, length));
        offset += length;
      }
      std::vector<uint32_t> checksums(pieces.size(), 1);
      EXPECT(pair.Execute(op, pieces, {.deadline = Soon(), .checksums = checksums}).ok());
      EXPECT(checksums == expected);
    }
  }
}

TEST(ThousandsOfSmallPiecesGoTogether) {
  for (const SameHost same_host : kBothWays) {
    const Pair pair(same_host);
    constexpr uint64_t kCount = 5'000, kLength = 97;
    const Bytes content = Random(kCount * kLength, 4);
    const DeviceMemory source(0, content), target(0, content.size());
    pair.Register(source);
    pair.Register(target);
    std::vector<Piece> out, in;
    for (uint64_t i = 0; i < kCount; ++i) {
      const uint64_t at = i * 7 % kCount * kLength;
      out.push_back({source.address() + at, at, kLength});
      in.push_back({target.address() + i * kLength, i * kLength, kLength});
    }
    EXPECT(pair.Execute(Op::kWrite, out).ok());
    EXPECT(pair.content(0, content.size()) == content);
    const int before = TheDriver().count("cuMemcpyHtoDAsync_v2");
    EXPECT(pair.Execute(Op::kRead, in).ok());
    EXPECT(target.content() == content);
    EXPECT(TheDriver().count("cuMemcpyHtoDAsync_v2") == before + 1);  // they follow each other
  }
}

TEST(SubmittedBatchesOfSeveralThreadsDoNotMeet) {
  for (const SameHost same_host : kBothWays) {
    const Pair pair(same_host);
    const auto work = [&](uint32_t seed) {
      const uint64_t size = 700'000, offset = seed * size;
      const Bytes content = Random(size, seed);
      const DeviceMemory source(seed % 2, content), target(seed % 2, size);
      pair.Register(source);
      pair.Register(target);
      const Piece out{source.address(), offset, size}, in{target.address(), offset, size};
      for (int round = 0; round < 3; ++round) {
        const auto transfer = pair.user->Submit(Op::kWrite, pair.remote, {out}, {Soon()}).value();
        EXPECT(transfer->Wait(Soon())->ok());
        EXPECT(pair.user->Execute(Op::kRead, pair.remote, {&in, 1}, {Soon()}).ok());
        EXPECT(target.content() == content);
      }
    };
    std::vector<std::thread> threads;
    for (uint32_t seed = 0; seed < 6; ++seed) threads.emplace_back(work, seed);
    for (auto& thread : threads) thread.join();
  }
}

TEST(OnlyMemoryOfOneGpuIsRegistered) {
  const Pair pair(SameHost::kShm, 4096);
  const DeviceMemory memory(1, 4096);
  Bytes host(100);
  const auto code = [&](uint64_t address, uint64_t size) {
    return pair.user->RegisterDeviceBuffer(address, size).code();
  };
  EXPECT(code(memory.address(), 4096) == Code::kOk);
  EXPECT(code(memory.address(), 4097) == Code::kInvalidArgument);
  EXPECT(code(memory.address(), 0) == Code::kInvalidArgument);
  EXPECT(code(memory.address(), UINT64_MAX) == Code::kInvalidArgument);
  EXPECT(code(reinterpret_cast<uint64_t>(host.data()), 100) == Code::kInvalidArgument);
  TheDriver().Fail("cuPointerGetAttributes", 0, 999);
  EXPECT(code(memory.address(), 4096) == Code::kSystem);
}

// Each call that may fail, at the first chunk and at a later one.
TEST(AnErrorOfTheDriverEndsTheBatchAndNothingElse) {
  for (const SameHost same_host : kBothWays) {
    const Pair pair(same_host);
    const Bytes content = Random(kManyBytes, 5);
    const DeviceMemory memory(0, content);
    pair.Register(memory);
    const std::vector<Piece> all = {{memory.address(), 0, kManyBytes}};
    for (const char* call : {"cuMemcpyDtoHAsync_v2", "cuStreamSynchronize"}) {
      for (const int skip : {0, 2}) {
        TheDriver().Fail(call, skip, 700);
        const Status status = pair.Execute(Op::kWrite, all);
        EXPECT(status.code() == Code::kSystem && status.is_dirty() == (skip > 0));
        EXPECT(pair.Execute(Op::kWrite, all).ok());
        EXPECT(pair.content(0, kManyBytes) == content);
      }
    }
    for (const char* call : {"cuMemcpyHtoDAsync_v2", "cuStreamSynchronize"}) {
      TheDriver().Fail(call, 1, 700);
      const Status status = pair.Execute(Op::kRead, all);
      EXPECT(status.code() == Code::kSystem && !status.is_dirty());
      EXPECT(pair.Execute(Op::kRead, all).ok());
      EXPECT(memory.content() == content);
    }
  }
}

TEST(WithoutPinnedMemoryABatchFailsBeforeItBegins) {
  const Pair pair(SameHost::kShm);
  const DeviceMemory memory(0, Random(kManyBytes, 6));
  pair.Register(memory);
  const std::vector<Piece> all = {{memory.address(), 0, kManyBytes}};
  for (const char* call : {"cuMemHostAlloc", "cuStreamCreate"}) {
    TheDriver().Fail("cuStreamSynchronize", 0, 700);  // what was pinned is not used again
    EXPECT(pair.Execute(Op::kWrite, all).code() == Code::kSystem);
    TheDriver().Fail(call, 0, 2);
    const Status status = pair.Execute(Op::kWrite, all);
    EXPECT(status.code() == Code::kOutOfSpace && !status.is_dirty());
    EXPECT(status.message().find("CUDA_ERROR_OUT_OF_MEMORY") != std::string::npos);
    EXPECT(pair.Execute(Op::kWrite, all).ok());
  }
}

TEST(MemoryThatWasFreedIsAnErrorOfTheDriver) {
  const Pair pair(SameHost::kShm);
  const DeviceMemory memory(0, kManyBytes);
  pair.Register(memory);
  memory.Free();
  const Status status = pair.Execute(Op::kRead, {{memory.address(), 0, kManyBytes}});
  EXPECT(status.code() == Code::kSystem);
}

// In the middle of a batch: the first chunk has been written, the last has not.
TEST(CancelDeadlineAndADeadOwnerEndABatchBetweenChunks) {
  for (const SameHost same_host : kBothWays) {
    for (const Op op : {Op::kWrite, Op::kRead}) {
      for (const Code code : {Code::kCancelled, Code::kTimeout, Code::kPeerUnreachable}) {
        const Pair pair(same_host);
        const DeviceMemory memory(0, Random(kManyBytes, 7));
        pair.Register(memory);
        CancelFlag cancel;
        const Deadline deadline = code == Code::kTimeout ? Deadline::After(0.5) : Soon();
        const OnCopy hook(op == Op::kWrite ? 2 : 1, [&] {
          if (code == Code::kCancelled) cancel.Set();
          if (code == Code::kPeerUnreachable) pair.owner->Close();
          while (code == Code::kTimeout && !deadline.passed()) std::this_thread::yield();
        });
        BatchOptions options{deadline};
        options.cancel = &cancel;
        const Status status = pair.Execute(op, {{memory.address(), 0, kManyBytes}}, options);
        EXPECT(status.code() == code && status.is_dirty() == (op == Op::kWrite));
        EXPECT(op == Op::kRead || pair.segment->data()[kManyBytes - 1] == 0);
      }
    }
  }
}

TEST(ABatchThatIsOverBeforeItBeginsWritesNothing) {
  const Pair pair(SameHost::kShm);
  const DeviceMemory memory(0, Random(kManyBytes, 8));
  pair.Register(memory);
  const Status status =
      pair.Execute(Op::kWrite, {{memory.address(), 0, kManyBytes}}, {Deadline::After(-1)});
  EXPECT(status.code() == Code::kTimeout && !status.is_dirty());
  EXPECT(pair.content(0, kManyBytes) == Bytes(kManyBytes));
}

TEST(UnregisterWaitsForTheLastCopy) {
  for (const Op op : {Op::kWrite, Op::kRead}) {
    const Pair pair(SameHost::kShm);
    const DeviceMemory memory(0, kManyBytes);
    pair.Register(memory);
    int at_return = 0;
    std::thread other;
    const auto unregister = [&] {
      EXPECT(pair.user->UnregisterBuffer(memory.address(), kManyBytes).ok());
      at_return = TheDriver().count("cuStreamSynchronize");
    };
    {
      const OnCopy hook(1, [&] {
        other = std::thread(unregister);
        // Possible once it is unregistered: it is on a GPU.
        while (!pair.user->RegisterBuffer(memory.address(), 1).ok()) std::this_thread::yield();
      });
      EXPECT(pair.Execute(op, {{memory.address(), 0, kManyBytes}}).ok());
    }
    other.join();
    EXPECT(at_return == TheDriver().count("cuStreamSynchronize"));
    EXPECT(!pair.Execute(op, {{memory.address(), 0, kManyBytes}}).ok());
  }
}

}  // namespace
}  // namespace mooncake

RUN_TESTS()
