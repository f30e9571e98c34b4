#include "transfer/path_meter.h"

#include <algorithm>

namespace mooncake {
namespace {

constexpr double kSampleS = 0.005;  // shorter ones are mostly jitter
constexpr double kMemoryS = 0.020;  // how long the past weighs in a rate
constexpr double kSteadyS = 0.003;  // a rate that was kept up for so long is no burst

}  // namespace

void PathMeter::BecomeBusy(double now) {
  answer_s_ = now;
  is_first_ = true;
  run_s_ = now;
  run_bytes_ = 0;
}

// The time to the first answer of a busy period counts less the latency. A quarter of it counts at
// least: a latency that was measured too large must not make the path look fast.
void PathMeter::Answered(uint64_t bytes, double elapsed_s, bool was_idle, double latency_s,
                         double now) {
  elapsed_s = std::max(elapsed_s, 1e-9);
  if (was_idle) MeasureLatency(bytes, elapsed_s, latency_s);
  double busy_s = std::max(now - answer_s_, 0.0);
  if (is_first_) busy_s = std::max(busy_s - latency_s_, busy_s / 4);
  is_first_ = false;
  answer_s_ = now;
  busy_s_ += busy_s;
  busy_bytes_ += bytes;
  run_bytes_ += bytes;
  if (busy_s_ >= std::min(kSampleS, measured_s_)) Fold();
  if (was_idle) RaiseTo(static_cast<double>(bytes) / elapsed_s);
  steady_ = now - run_s_ >= kSteadyS ? rate_ : std::min(steady_, rate_);
}

// A slice was alone on the path: it is at least so fast. Or that was a burst: what comes next
// counts in full. Samples of a path that is hardly used are rare, so none is waited for.
void PathMeter::RaiseTo(double rate) {
  if (rate <= rate_) return;
  if (rate > 1.25 * rate_) measured_s_ = 0;
  rate_ = rate;
}

// Of a slice that started on an idle path. When all of the time is what the bytes should have
// taken at that rate, then the rate may be too low, and the slice says nothing about the latency.
void PathMeter::MeasureLatency(uint64_t bytes, double elapsed_s, double latency_s) {
  if (rate_ <= 0) {
    latency_s_ = std::min(elapsed_s / 2, latency_s);
    return;
  }
  const double rest_s = elapsed_s - static_cast<double>(bytes) / rate_;
  if (rest_s < elapsed_s / 16) return;
  const double sample_s = std::min(rest_s, elapsed_s / 2);
  latency_s_ += (sample_s < latency_s_ ? 0.5 : 0.1) * (sample_s - latency_s_);
}

void PathMeter::Fold() {
  if (busy_s_ <= 0) return;
  const double sample = static_cast<double>(busy_bytes_) / busy_s_;
  rate_ += busy_s_ / (busy_s_ + std::min(measured_s_, kMemoryS)) * (sample - rate_);
  measured_s_ += busy_s_;
  busy_s_ = 0;
  busy_bytes_ = 0;
}

void PathMeter::GiveUp(const Load& load, double now) {
  rate_ = RateNow(load, now);
  measured_s_ = 0;
  steady_ = 0;
  busy_s_ = 0;
  busy_bytes_ = 0;
}

double PathMeter::RateNow(const Load& load, double now) const {
  const double silent_s = now - answer_s_ - latency_s_;
  if (load.bytes == 0 || silent_s <= 0) return rate_;
  return std::min(rate_, static_cast<double>(load.bytes) / silent_s);
}

double PathMeter::QueuedBytes(const Load& load, double rate, double now) const {
  if (load.slices == 0) return 0;
  const auto bytes = static_cast<double>(load.bytes);
  const double busy_s = now - answer_s_ - (is_first_ ? latency_s_ : 0);
  const double oldest = bytes / static_cast<double>(load.slices);
  return bytes - std::clamp(rate * busy_s, 0.0, oldest);
}

}  // namespace mooncake
