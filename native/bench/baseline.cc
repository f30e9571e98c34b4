#include "bench/baseline.h"

#include <sys/mman.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <latch>
#include <memory>
#include <numeric>
#include <thread>
#include <utility>
#include <vector>

#include "base/deadline.h"
#include "base/socket.h"
#include "bench/socket_peer.h"

namespace mooncake {
namespace {

constexpr double kConnectSeconds = 5;

struct Moved {
  Status status;
  uint64_t bytes = 0;
};

// One thread's work, ready to go.
class Worker {
 public:
  virtual ~Worker() = default;
  virtual Moved Run(Deadline deadline) = 0;
};

// The offset of the block that is `blocks` further on, round and round.
uint64_t Next(uint64_t offset, const BaselineLoad& load, uint64_t blocks = 1) {
  return (offset + blocks * load.block_bytes) % load.span_bytes;
}

// A step by which every one of `blocks` is reached, and none soon after its neighbour.
uint64_t Stride(uint64_t blocks) {
  uint64_t stride = std::max<uint64_t>(1, blocks * 618 / 1000);
  while (std::gcd(stride, blocks) != 1) ++stride;
  return stride;
}

class Copier : public Worker {
 public:
  Copier(FaultedMemory source, FaultedMemory target, const BaselineLoad& load)
      : source_(std::move(source)), target_(std::move(target)), load_(load) {}

  static Result<std::unique_ptr<Worker>> Make(const BaselineLoad& load) {
    auto source = FaultedMemory::Take(load.span_bytes);
    if (!source.ok()) return source.status();
    auto target = FaultedMemory::Take(load.span_bytes);
    if (!target.ok()) return target.status();
    return std::unique_ptr<Worker>(
        new Copier(std::move(source).value(), std::move(target).value(), load));
  }

  Moved Run(Deadline deadline) override {
    // The clock is read once in about 256 KiB: it costs as much as the copy of a small block.
    const uint64_t round = std::max<uint64_t>(1, (256u << 10) / load_.block_bytes);
    const uint64_t stride = Stride(load_.span_bytes / load_.block_bytes);
    Moved moved;
    uint64_t from = 0;
    uint64_t to = 0;
    do {
      for (uint64_t i = 0; i < round; ++i) {
        std::memcpy(target_.data() + to, source_.data() + from, load_.block_bytes);
        from = Next(from, load_);
        to = Next(to, load_, stride);
      }
      moved.bytes += round * load_.block_bytes;
    } while (!deadline.passed());
    return moved;
  }

 private:
  const FaultedMemory source_;
  const FaultedMemory target_;
  const BaselineLoad load_;
};

class Streamer : public Worker {
 public:
  Streamer(Fd socket, FaultedMemory memory, Op op, const BaselineLoad& load)
      : socket_(std::move(socket)), memory_(std::move(memory)), op_(op), load_(load) {}

  static Result<std::unique_ptr<Worker>> Make(const Address& address, Op op,
                                              const BaselineLoad& load) {
    auto memory = FaultedMemory::Take(load.span_bytes);
    if (!memory.ok()) return memory.status();
    const Deadline deadline = Deadline::After(kConnectSeconds);
    auto socket = ConnectTcp(address, deadline);
    if (!socket.ok()) return socket.status();
    const StreamHeader header{kStreamMagic, op == Op::kWrite ? 1u : 0u, load.block_bytes,
                              load.span_bytes};
    MC_RETURN_IF_ERROR(SendAll(socket.value(), &header, sizeof header, deadline));
    uint8_t ready = 0;
    MC_RETURN_IF_ERROR(RecvAll(socket.value(), &ready, sizeof ready, deadline));
    MC_RETURN_IF_ERROR(MakeBlocking(socket.value()));
    return std::unique_ptr<Worker>(
        new Streamer(std::move(socket).value(), std::move(memory).value(), op, load));
  }

  Moved Run(Deadline deadline) override {
    return op_ == Op::kWrite ? Write(deadline) : Read(deadline);
  }

 private:
  Moved Write(Deadline deadline) {
    uint64_t sent = 0;
    uint64_t offset = 0;
    do {
      const Status status = SendBlock(socket_, memory_.data() + offset, load_.block_bytes);
      if (!status.ok()) return {status, 0};
      sent += load_.block_bytes;
      offset = Next(offset, load_);
    } while (!deadline.passed());
    shutdown(socket_.get(), SHUT_WR);
    uint64_t received = 0;
    const ssize_t count = recv(socket_.get(), &received, sizeof received, MSG_WAITALL);
    if (count != sizeof received || received != sent) {
      return {Status(Code::kPeerUnreachable, "a baseline stream broke off"), 0};
    }
    return {Status::Ok(), received};
  }

  Moved Read(Deadline deadline) {
    Moved moved;
    const uint8_t go = 1;
    if (send(socket_.get(), &go, 1, MSG_NOSIGNAL) != 1) return {SystemError("send"), 0};
    uint64_t offset = 0;
    do {
      const ssize_t count = recv(socket_.get(), memory_.data() + offset,
                                 std::min(load_.block_bytes, load_.span_bytes - offset), 0);
      if (count <= 0) return {Status(Code::kPeerUnreachable, "a baseline stream broke off"), 0};
      moved.bytes += static_cast<uint64_t>(count);
      offset += static_cast<uint64_t>(count);
      if (offset == load_.span_bytes) offset = 0;
    } while (!deadline.passed());
    return moved;
  }

  const Fd socket_;
  const FaultedMemory memory_;
  const Op op_;
  const BaselineLoad load_;
};

using MakeWorker = std::function<Result<std::unique_ptr<Worker>>()>;

// Runs a worker a thread, all from the same moment on.
Result<double> RunTogether(const BaselineLoad& load, const MakeWorker& make) {
  MC_RETURN_IF_ERROR(CheckLoad(load));
  std::vector<std::unique_ptr<Worker>> workers;
  for (int i = 0; i < load.threads; ++i) {
    auto worker = make();
    if (!worker.ok()) return worker.status();
    workers.push_back(std::move(worker).value());
  }
  std::vector<Moved> moved(workers.size());
  std::latch start(load.threads + 1);
  std::vector<std::thread> threads;
  for (size_t i = 0; i < workers.size(); ++i) {
    threads.emplace_back([&, i] {
      start.arrive_and_wait();
      moved[i] = workers[i]->Run(Deadline::After(load.seconds));
    });
  }
  start.arrive_and_wait();
  const double started_s = MonotonicSeconds();
  for (std::thread& thread : threads) thread.join();
  const double seconds = MonotonicSeconds() - started_s;
  uint64_t bytes = 0;
  for (const Moved& one : moved) {
    MC_RETURN_IF_ERROR(one.status);
    bytes += one.bytes;
  }
  return static_cast<double>(bytes) / seconds;
}

}  // namespace

Result<FaultedMemory> FaultedMemory::Take(uint64_t size_bytes) {
  void* data = mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (data == MAP_FAILED) return SystemError("memory for a baseline");
  // Reading pages that were never written would read one page of zeros.
  std::memset(data, 0x5a, size_bytes);
  return FaultedMemory(static_cast<char*>(data), size_bytes);
}

FaultedMemory::FaultedMemory(FaultedMemory&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), size_bytes_(other.size_bytes_) {}

FaultedMemory::~FaultedMemory() {
  if (data_ != nullptr) munmap(data_, size_bytes_);
}

Status CheckLoad(const BaselineLoad& load) {
  const auto bad = [](const std::string& what) { return Status(Code::kInvalidArgument, what); };
  if (load.threads < 1 || load.threads > kMaxStreams) {
    return bad("threads is " + std::to_string(load.threads) + "; 1 to " +
               std::to_string(kMaxStreams) + " are possible");
  }
  if (load.block_bytes == 0 || load.span_bytes % load.block_bytes != 0 || load.span_bytes == 0 ||
      load.span_bytes > kMaxSpanBytes) {
    return bad("span_bytes is " + std::to_string(load.span_bytes) +
               "; a multiple of block_bytes (" + std::to_string(load.block_bytes) +
               ") up to 1 GiB is needed");
  }
  return Status::Ok();
}

Result<double> MemcpyRate(const BaselineLoad& load) {
  return RunTogether(load, [&] { return Copier::Make(load); });
}

Result<double> SocketRate(const std::string& endpoint, Op op, const BaselineLoad& load) {
  auto address = ParseAddress(endpoint);
  if (!address.ok()) return address.status();
  return RunTogether(load, [&] { return Streamer::Make(address.value(), op, load); });
}

}  // namespace mooncake
