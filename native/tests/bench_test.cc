// Baselines, patterns and the load of a master.
#include <sys/socket.h>

#include <thread>
#include <vector>

#include "base/socket.h"
#include "bench/baseline.h"
#include "bench/master_load.h"
#include "bench/pattern.h"
#include "bench/socket_peer.h"
#include "tests/test.h"

namespace mooncake {
namespace {

constexpr BaselineLoad kSmall{2, 4096, 64 << 10, 0.02};

TEST(APatternIsTheSameWhereverOneStarts) {
  std::vector<uint8_t> whole(1000);
  FillPattern(whole.data(), whole.size(), 6, 0);
  for (uint64_t offset = 0; offset < 20; ++offset) {
    for (uint64_t size = 0; size < 40; ++size) {
      std::vector<uint8_t> part(size);
      FillPattern(part.data(), size, 6, offset);
      EXPECT(std::equal(part.begin(), part.end(), whole.begin() + static_cast<long>(offset)));
      EXPECT(CheckPattern(part.data(), size, 6, offset) == size);
    }
  }
}

TEST(TheFirstWrongByteIsFound) {
  std::vector<uint8_t> data(100);
  for (size_t at = 0; at < data.size(); ++at) {
    FillPattern(data.data(), data.size(), 7, 3);
    data[at] ^= 0x80;
    EXPECT(CheckPattern(data.data(), data.size(), 7, 3) == at);
  }
}

TEST(PairedSeedsAreComplements) {
  std::vector<uint8_t> one(64), other(64);
  FillPattern(one.data(), one.size(), 8, 0);
  FillPattern(other.data(), other.size(), 9, 0);
  for (size_t i = 0; i < one.size(); ++i) EXPECT((one[i] ^ other[i]) == 0xff);
}

TEST(MemcpyAndSocketsHaveARate) {
  auto peer = SocketPeer::Create("127.0.0.1:0");
  EXPECT(peer.ok());
  const std::string& endpoint = peer.value()->endpoint();
  EXPECT(MemcpyRate(kSmall).ok());
  for (int round = 0; round < 3; ++round) {
    for (const Op op : {Op::kRead, Op::kWrite}) {
      const auto rate = SocketRate(endpoint, op, kSmall);
      EXPECT(rate.ok() && rate.value() > 0);
    }
  }
}

TEST(APeerThatIsClosedEndsItsStreams) {
  auto peer = SocketPeer::Create("127.0.0.1:0");
  EXPECT(peer.ok());
  const std::string endpoint = peer.value()->endpoint();
  std::thread closing([&] { peer.value()->Close(); });
  for (int i = 0; i < 50; ++i) (void)SocketRate(endpoint, Op::kWrite, {1, 4096, 4096, 0.001});
  closing.join();
  EXPECT(!SocketRate(endpoint, Op::kWrite, kSmall).ok());
}

TEST(AMasterIsLoadedWithPutsThatAreAllTaken) {
  MasterLoad load({.room_objects = 100, .batch = 30});
  const MasterLoadTime time = load.Put(250);
  EXPECT(time.put == 250 && time.refused == 0);
  EXPECT(load.objects() == 100);
}

TEST(LoadsThatMakeNoSenseAreRefused) {
  for (const BaselineLoad& load :
       {BaselineLoad{0, 1, 1, 1}, BaselineLoad{kMaxStreams + 1, 1, 1, 1}, BaselineLoad{1, 0, 0, 1},
        BaselineLoad{1, 3, 10, 1}, BaselineLoad{1, 1, kMaxSpanBytes + 1, 1}}) {
    EXPECT(MemcpyRate(load).status().code() == Code::kInvalidArgument);
  }
}

}  // namespace
}  // namespace mooncake

RUN_TESTS()
