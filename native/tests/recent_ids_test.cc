#include "store/recent_ids.h"

#include "tests/test.h"

namespace mooncake::store {
namespace {

TEST(TheOldestIsForgottenForANewOne) {
  RecentIds ids(3);
  for (uint64_t id = 1; id <= 5; ++id) ids.Add(id);
  for (uint64_t id = 1; id <= 5; ++id) EXPECT(ids.Contains(id) == (id > 2));
}

TEST(OneThatIsKnownKeepsItsPlace) {
  RecentIds ids(2);
  ids.Add(1);
  ids.Add(2);
  ids.Add(1);
  ids.Add(3);
  EXPECT(!ids.Contains(1) && ids.Contains(2) && ids.Contains(3));
}

}  // namespace
}  // namespace mooncake::store

RUN_TESTS()
