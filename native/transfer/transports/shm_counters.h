// ShmCounters: what one ShmTransport has done so far.
//
// Thread safety: all methods may be called by any thread.
#pragma once

#include <atomic>
#include <cstdint>

#include "base/deadline.h"
#include "transfer/types.h"

namespace mooncake {

class ShmCounters {
 public:
  // A batch of so many bytes begins. Gives the time, for End.
  double Start(uint64_t bytes) {
    Add(in_flight_bytes_, bytes);
    return MonotonicSeconds();
  }

  // One part of a batch was copied.
  void Moved(Op op, uint64_t bytes) {
    Add(op == Op::kRead ? read_bytes_ : written_bytes_, bytes);
    Add(slices_, 1);
  }

  // A batch has ended after `moved` of its bytes.
  void End(uint64_t bytes, uint64_t moved, double start_s) {
    Add(in_flight_bytes_, 0 - bytes);
    const double seconds = MonotonicSeconds() - start_s;
    if (moved == 0 || seconds <= 0) return;
    const double rate = static_cast<double>(moved) / seconds;
    const double before = rate_bytes_per_s_.load(std::memory_order_relaxed);
    const double mixed = before == 0 ? rate : before + (rate - before) / 8;
    rate_bytes_per_s_.store(mixed, std::memory_order_relaxed);
  }

  void Fill(PathStatistics& path) const {
    path.read_bytes = read_bytes_.load(std::memory_order_relaxed);
    path.written_bytes = written_bytes_.load(std::memory_order_relaxed);
    path.slices = slices_.load(std::memory_order_relaxed);
    path.in_flight_bytes = in_flight_bytes_.load(std::memory_order_relaxed);
    path.rate_bytes_per_s = rate_bytes_per_s_.load(std::memory_order_relaxed);
  }

 private:
  using Counter = std::atomic<uint64_t>;
  static void Add(Counter& counter, uint64_t count) {
    counter.fetch_add(count, std::memory_order_relaxed);
  }

  Counter read_bytes_ = 0;
  Counter written_bytes_ = 0;
  Counter slices_ = 0;
  Counter in_flight_bytes_ = 0;
  std::atomic<double> rate_bytes_per_s_ = 0;
};

}  // namespace mooncake
