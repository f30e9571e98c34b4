// PathMeter: how fast one path is, by the answers to its slices. What went into a send buffer says
// nothing: only the time between answers does, while work is in flight.
//
// Pure. Thread safety: none; under the lock of its owner.
#pragma once

#include <algorithm>
#include <cstdint>

namespace mooncake {

class PathMeter {
 public:
  struct Load {
    uint64_t bytes = 0;  // in flight
    uint64_t slices = 0;
  };

  // 0: not measured yet.
  double rate_bytes_per_s() const { return rate_; }
  // Of a slice on an idle path, less its bytes at that rate.
  double latency_s() const { return latency_s_; }
  // When the last answer came, or when the path became busy.
  double answer_s() const { return answer_s_; }

  // The path has work in flight, after it had none.
  void BecomeBusy(double now);
  // A slice was answered that took `elapsed_s`; `was_idle`: it had made the path busy. The latency
  // of a path that was never measured is taken to be at most `latency_s`.
  void Answered(uint64_t bytes, double elapsed_s, bool was_idle, double latency_s, double now);
  // The path was given up; the next answers weigh as if they were its first.
  void GiveUp(const Load& load, double now);

  // Less than what was measured once what is in flight should have been done long ago.
  double RateNow(const Load& load, double now) const;
  // Bytes in flight, less what should have moved of the oldest slice at `rate` since the last
  // answer.
  double QueuedBytes(const Load& load, double rate, double now) const;
  // Bytes that the path may be trusted with at once, of `window_s` of work. A shaper lets the first
  // bytes after a rest pass at the speed of the line: beyond what the path has kept up for a while
  // it gets twice of what it has answered since the rest.
  double ProvenBytes(double window_s) const {
    return std::max(steady_ * window_s, 2.0 * static_cast<double>(run_bytes_));
  }

 private:
  void MeasureLatency(uint64_t bytes, double elapsed_s, double latency_s);
  void RaiseTo(double rate);
  void Fold();

  double rate_ = 0;
  double latency_s_ = 0;
  double measured_s_ = 0;  // of busy time behind the rate
  double answer_s_ = 0;
  bool is_first_ = false;    // no answer yet since the path became busy
  double busy_s_ = 0;        // not folded into the rate yet
  uint64_t busy_bytes_ = 0;  // answered in busy_s_
  double run_s_ = 0;         // when the path became busy
  uint64_t run_bytes_ = 0;   // answered since
  double steady_ = 0;        // rate that was kept up
};

}  // namespace mooncake
