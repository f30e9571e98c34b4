#include "store/node_health.h"

#include <algorithm>

#include "tests/test.h"

namespace mooncake::store {
namespace {

using Health = NodeHealth;

TEST(ANodeThatDidNotFailIsWaitedFor) {
  Health health;
  EXPECT(health.PatienceFor(1, 0) == Health::kOpen_s);
  health.Fail(1, 0);
  EXPECT(health.PatienceFor(2, 0) == Health::kOpen_s);
}

TEST(AfterEachFailureInARowItIsLeftAloneForTwiceAsLong) {
  Health health;
  double now_s = 100, pause_s = Health::kFirstPause_s;
  for (int failures = 0; failures < 10; ++failures) {
    health.Fail(1, now_s);
    EXPECT(health.PatienceFor(1, now_s + pause_s - 0.01) == 0);
    now_s += pause_s;
    EXPECT(health.PatienceFor(1, now_s) == Health::kTrial_s);
    now_s += Health::kTrial_s;
    pause_s = std::min(2 * pause_s, Health::kLongestPause_s);
  }
}

TEST(OneCallAtATimeTriesIt) {
  Health health;
  health.Fail(1, 0);
  EXPECT(health.PatienceFor(1, 1) == Health::kTrial_s);
  EXPECT(health.PatienceFor(1, 1.1) == 0);
  EXPECT(health.PatienceFor(1, 1 + Health::kTrial_s) == Health::kTrial_s);
}

TEST(CallsThatFailTogetherCountOnce) {
  Health health;
  for (int calls = 0; calls < 5; ++calls) health.Fail(1, 0.01 * calls);
  EXPECT(health.PatienceFor(1, Health::kFirstPause_s) == Health::kTrial_s);
}

TEST(ANodeThatWorksAgainIsForgiven) {
  Health health;
  for (double now_s : {0.0, 5.0, 10.0}) health.Fail(1, now_s);
  EXPECT(health.PatienceFor(1, 13.9) == 0);
  health.Work(1);
  EXPECT(health.PatienceFor(1, 13.9) == Health::kOpen_s);
  EXPECT(health.is_empty());
  health.Fail(1, 20);
  EXPECT(health.PatienceFor(1, 21) == Health::kTrial_s);
}

}  // namespace
}  // namespace mooncake::store

RUN_TESTS()
