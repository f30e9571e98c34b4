// Batches over two paths, each through a relay, while one of them stalls or is cut.
#include <poll.h>

#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "base/random.h"
#include "tests/relay.h"
#include "tests/test.h"
#include "transfer/engine.h"
#include "transfer/transports/tcp.h"

namespace mooncake {
namespace {

using test::Relay;

constexpr uint64_t kSize = 16 << 20;

Deadline Soon() { return Deadline::After(20); }

// An owner, two relays to it, and a transport whose paths lead through them.
struct Bed {
  Bed() : owner(Engine::Create({}).value()), segment(owner->CreateSegment(kSize).value()) {
    const Address address = ParseAddress(owner->endpoint()).value();
    for (const char* host : {"127.0.0.2", "127.0.0.3"}) {
      relays.push_back(std::make_unique<Relay>(host, address));
    }
    Hello hello{RandomId()};
    auto first = TcpLane::Connect(relays[0]->address(), hello, Soon()).value();
    hello.expected_engine_id = first.reply.engine_id;
    TcpTransport::Target target{"the owner", {}, hello};
    for (const auto& relay : relays) target.routes.push_back({"", relay->address()});
    transport = std::make_shared<TcpTransport>(std::move(target), std::move(first.lane));
    for (size_t i = 0; i < kSize; ++i) local[i] = static_cast<uint8_t>(i * 13 >> 4);
  }
  ~Bed() { transport->End(Status(Code::kClosed, "the test is over")); }

  Status Move(Op op, double limit_s = 20) {
    const Piece all{reinterpret_cast<uint64_t>(local.data()), 0, kSize};
    return transport->Execute(op, segment->id(), {&all, 1}, {Deadline::After(limit_s)});
  }
  bool IsEqual() const { return std::memcmp(local.data(), segment->data(), kSize) == 0; }
  PathStatistics Path(size_t index) const {
    std::vector<PathStatistics> paths;
    transport->AppendStatistics(paths);
    return paths[index];
  }
  bool IsUpSoon(size_t index) const {
    const Deadline deadline = Deadline::After(5);
    while (Path(index).state != "up" && !deadline.passed()) std::this_thread::yield();
    return Path(index).state == "up";
  }

  std::shared_ptr<Engine> owner;
  std::shared_ptr<Segment> segment;
  std::vector<std::unique_ptr<Relay>> relays;
  std::shared_ptr<TcpTransport> transport;
  std::vector<uint8_t> local = std::vector<uint8_t>(kSize);
};

// Moves batches until `is_over`, and expects every one to end well.
void MoveUntil(Bed& bed, Op op, const std::function<bool()>& is_over) {
  const Deadline deadline = Soon();
  do {
    if (op == Op::kWrite) std::memset(bed.segment->data(), 0, kSize);
    const Status status = bed.Move(op);
    EXPECT(status.ok() && bed.IsEqual());
    if (!status.ok()) std::fprintf(stderr, "%s\n", status.message().c_str());
  } while (!is_over() && !deadline.passed());
  EXPECT(is_over());
}

TEST(APathThatStallsIsLeftAndTakenBack) {
  for (const Op op : {Op::kWrite, Op::kRead}) {
    Bed bed;
    std::memcpy(bed.segment->data(), bed.local.data(), kSize);
    MoveUntil(bed, op, [&] { return bed.Path(0).slices > 0 && bed.Path(1).slices > 0; });
    bed.relays[1]->Stall();
    const double started_s = MonotonicSeconds();
    MoveUntil(bed, op, [&] { return bed.Path(1).quarantines > 0; });
    EXPECT(MonotonicSeconds() - started_s < 10);
    EXPECT(bed.Path(1).resent_slices > 0);
    bed.relays[1]->Resume();
    EXPECT(bed.IsUpSoon(1));
    const uint64_t before = bed.Path(1).slices;
    MoveUntil(bed, op, [&] { return bed.Path(1).slices > before; });
  }
}

TEST(ABatchOutlivesConnectionsThatAreCut) {
  for (const Op op : {Op::kWrite, Op::kRead}) {
    Bed bed;
    std::memcpy(bed.segment->data(), bed.local.data(), kSize);
    MoveUntil(bed, op, [&] { return bed.Path(1).slices > 0; });
    std::atomic<int> left = 6;
    std::thread cutter([&] {
      for (; left > 0; --left) {
        std::this_thread::sleep_for(std::chrono::milliseconds(20));
        bed.relays[left % 2]->Cut();
      }
    });
    MoveUntil(bed, op, [&] { return left == 0; });
    cutter.join();
  }
}

TEST(WhenAllPathsStallTheDeadlineEndsTheBatch) {
  Bed bed;
  EXPECT(bed.Move(Op::kWrite).ok());
  for (const auto& relay : bed.relays) relay->Stall();
  const double started_s = MonotonicSeconds();
  const Status status = bed.Move(Op::kWrite, 0.8);
  EXPECT(status.code() == Code::kTimeout && status.is_dirty());
  EXPECT(MonotonicSeconds() - started_s < 1.5);
  for (const auto& relay : bed.relays) relay->Resume();
  EXPECT(bed.Move(Op::kWrite).ok() && bed.IsEqual());
}

TEST(AnOwnerThatIsGoneIsUnreachableAtOnceOnAllPaths) {
  Bed bed;
  EXPECT(bed.Move(Op::kWrite).ok());
  bed.owner->Close();
  const double started_s = MonotonicSeconds();
  EXPECT(bed.Move(Op::kRead).code() == Code::kPeerUnreachable);
  EXPECT(MonotonicSeconds() - started_s < 5);
}

}  // namespace
}  // namespace mooncake

RUN_TESTS()
