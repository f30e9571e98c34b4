// The path scheduler at random, every invariant after every step; simulated networks drive it in
// tests/transfer/sim.
#include "transfer/scheduler.h"

#include <cmath>
#include <random>
#include <vector>

#include "tests/test.h"

namespace mooncake {
namespace {

// Calls what a driver may call, in any order and at any time.
class Monkey {
 public:
  explicit Monkey(uint32_t seed) : random_(seed), scheduler_(Options()) {
    paths_ = 1 + Any(8);
    for (uint32_t i = 0; i < paths_; ++i) scheduler_.AddPath();
  }

  void Step() {
    now_ += std::pow(10.0, -6.0 + static_cast<double>(Any(6)));
    switch (Any(9)) {
      case 0:
        return Begin();
      case 1:
        return End();
      case 2:
        return Fail();
      case 3:
        return Probe();
      case 4:
        return static_cast<void>(scheduler_.Stalled(now_));
      case 5:
        return scheduler_.Progress(Any(paths_), now_);
      case 6:
        return Finish();
      default:
        return Send();
    }
  }

  void Check() {
    scheduler_.Check();
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < paths_; ++i) bytes += scheduler_.report(i).in_flight_bytes;
    for (const auto& slice : slices_) bytes -= slice.bytes;
    EXPECT(bytes == 0);
    for (const BatchIndex batch : batches_) EXPECT(scheduler_.NextEventS(batch, now_) >= now_);
  }

 private:
  SchedulerOptions Options() { return {.slice_bytes = uint64_t{1} << Any(31)}; }
  uint32_t Any(uint32_t below) { return random_() % below; }

  void Begin() {
    batches_.push_back(
        scheduler_.Begin(Any(2) == 0 ? Priority::kForeground : Priority::kBackground, now_));
  }

  void End() {
    if (batches_.empty()) return;
    const BatchIndex ended = batches_[Any(batches_.size())];
    std::erase_if(slices_, [&](const auto& slice) {
      if (slice.batch == ended) scheduler_.Returned(slice);
      return slice.batch == ended;
    });
    std::erase(batches_, ended);
    scheduler_.End(ended);
  }

  void Fail() {
    if (Any(4) == 0) scheduler_.Failed(Any(paths_), now_);
  }

  void Probe() {
    probing_ |= scheduler_.ToProbe(now_);
    for (uint32_t i = 0; i < paths_; ++i) {
      if ((probing_ >> i & 1) == 0 || Any(2) == 0) continue;
      probing_ &= ~(PathMask{1} << i);
      scheduler_.Probed(i, Any(3) != 0, now_);
    }
  }

  void Send() {
    if (batches_.empty()) return;
    const BatchIndex batch = batches_[Any(batches_.size())];
    const uint64_t left = 1 + (random_() >> Any(32));
    const auto choice = scheduler_.Pick(batch, {.left_bytes = left, .near = random_()}, now_);
    if (!choice) return;
    EXPECT((scheduler_.up() >> choice->path & 1) == 1);
    EXPECT(choice->slice_bytes > 0 && choice->slice_bytes <= left);
    slices_.push_back(scheduler_.Start(batch, choice->path,
                                       1 + Any(static_cast<uint32_t>(choice->slice_bytes)), now_));
  }

  void Finish() {
    if (slices_.empty()) return;
    const size_t at = Any(slices_.size());
    const auto slice = slices_[at];
    slices_.erase(slices_.begin() + static_cast<ptrdiff_t>(at));
    if (scheduler_.MustMove(slice) || Any(8) == 0) return scheduler_.Returned(slice);
    scheduler_.Completed(slice, now_);
  }

  std::mt19937 random_;
  PathScheduler scheduler_;
  uint32_t paths_ = 0;
  double now_ = 1;
  std::vector<BatchIndex> batches_;
  std::vector<PathScheduler::Slice> slices_;
  PathMask probing_ = 0;
};

TEST(EveryInvariantHoldsAfterEveryCall) {
  for (uint32_t seed = 0; seed < 100; ++seed) {
    Monkey monkey(seed);
    for (int i = 0; i < 1'000; ++i) {
      monkey.Step();
      monkey.Check();
    }
  }
}

}  // namespace
}  // namespace mooncake

RUN_TESTS()
