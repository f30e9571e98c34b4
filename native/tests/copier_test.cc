// Copies that a node fetches for itself: verified, each once, and never blocking who asks.
#include "store/copier.h"

#include <condition_variable>
#include <cstring>

#include "base/check.h"
#include "base/crc32c.h"
#include "store/layout.h"
#include "tests/test.h"

namespace mooncake::store {
namespace {

constexpr uint64_t kCopierTestBytes = 700'001;  // three chunks
constexpr uint64_t kLentBytes = 4 << 20;

std::shared_ptr<Engine> CopierEngine(SameHost same_host) {
  return Engine::Create({.listen = "127.0.0.1:0", .same_host = same_host}).value();
}

// A node that holds a stripe at offset 128.
struct Holder {
  explicit Holder(SameHost same_host, uint64_t generation = 9) : engine(CopierEngine(same_host)) {
    segment = engine->CreateSegment(kLentBytes).value();
    const auto header = EncodeHeader({generation, 1, kCopierTestBytes, 0, 77});
    std::memcpy(segment->data() + 128, header.data(), header.size());
    for (uint64_t at = 0; at < kCopierTestBytes; ++at) payload()[at] = uint8_t(at * 7 + (at >> 9));
  }
  uint8_t* payload() const { return segment->data() + 128 + kHeaderBytes; }
  NodeAddress address() const { return {segment->id(), engine->endpoint()}; }

  std::shared_ptr<Engine> engine;
  std::shared_ptr<Segment> segment;
};

CopyOrder OrderOf(uint64_t id, uint64_t offset, std::initializer_list<const Holder*> holders) {
  CopyOrder order{.order = id, .generation = 9, .offset = offset, .bytes = kCopierTestBytes};
  for (const Holder* holder : holders) {
    order.sources.push_back({static_cast<uint32_t>(order.nodes.size()), 128});
    order.nodes.push_back(holder->address());
  }
  const uint8_t* payload = (*(holders.end() - 1))->payload();
  for (uint64_t at = 0; at < kCopierTestBytes; at += kChunkBytes) {
    order.checksums.push_back(Crc32c(payload + at, std::min(kChunkBytes, kCopierTestBytes - at)));
  }
  return order;
}

// A node that is told to copy.
class Target {
 public:
  explicit Target(SameHost same_host)
      : engine(CopierEngine(same_host)),
        segment(engine->CreateSegment(kLentBytes).value()),
        copier_(engine, [this] {
          std::lock_guard lock(mutex_);
          ++news_;
          changed_.notify_all();
        }) {}

  void Ask(std::vector<CopyOrder> orders) { copier_.Obey(segment, std::move(orders)); }
  std::vector<CopyResult> Await(int news) {
    std::unique_lock lock(mutex_);
    const bool came =
        changed_.wait_for(lock, std::chrono::seconds(20), [&] { return news_ >= news; });
    MC_CHECK(came, "%d of %d results", news_, news);
    lock.unlock();
    return copier_.Finished();
  }
  bool Holds(uint64_t offset, const Holder& holder) const {
    return std::memcmp(segment->data() + offset, holder.segment->data() + 128,
                       kHeaderBytes + kCopierTestBytes) == 0;
  }
  Copier& copier() { return copier_; }

  std::shared_ptr<Engine> engine;
  std::shared_ptr<Segment> segment;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  int news_ = 0;
  Copier copier_;
};

void CopySeveral(SameHost same_host) {
  const Holder holder(same_host);
  Target target(same_host);
  std::vector<CopyOrder> orders;
  for (uint64_t id = 1; id <= 4; ++id) orders.push_back(OrderOf(id, id * (768 << 10), {&holder}));
  target.Ask(orders);
  target.Ask(orders);  // the next heartbeat's answer
  const auto results = target.Await(4);
  EXPECT(results.size() == 4);
  for (const CopyResult& result : results) {
    EXPECT(result.is_done && target.Holds(result.order * (768 << 10), holder));
  }
  target.Ask({orders[3]});  // the master has heard of the others
  EXPECT(target.copier().Finished().size() == 1);
}

TEST(SeveralStripesAreCopiedAndReportedUntilTheyAreNotAskedFor) {
  CopySeveral(SameHost::kShm);
  CopySeveral(SameHost::kNetwork);
}

TEST(WrongBytesAreNamedAndTheNextSourceIsTaken) {
  const Holder bad(SameHost::kShm), other(SameHost::kShm, 8), good(SameHost::kShm);
  bad.payload()[kChunkBytes + 3] ^= 1;
  Target target(SameHost::kShm);
  target.Ask({OrderOf(1, 0, {&bad, &other, &good})});
  const auto results = target.Await(1);
  EXPECT(results.size() == 1 && results[0].is_done && target.Holds(0, good));
  EXPECT((results[0].corrupt == std::vector<NodeId>{bad.segment->id(), other.segment->id()}));
}

TEST(WithoutAGoodSourceTheOrderFails) {
  const Holder bad(SameHost::kNetwork);
  Holder gone(SameHost::kNetwork);
  auto order = OrderOf(1, 0, {&gone, &bad});
  bad.payload()[0] ^= 1;
  gone.engine->Close();
  Target target(SameHost::kNetwork);
  target.Ask({order});
  const auto results = target.Await(1);
  EXPECT(results.size() == 1 && !results[0].is_done);
  EXPECT(results[0].corrupt == std::vector<NodeId>{bad.segment->id()});
}

TEST(WithoutChecksumsOnlyTheHeaderIsVerified) {
  const Holder holder(SameHost::kShm), other(SameHost::kShm, 10);
  Target target(SameHost::kShm);
  auto right = OrderOf(1, 0, {&holder}), wrong = OrderOf(2, 1 << 20, {&other});
  right.checksums.clear();
  wrong.checksums.clear();
  target.Ask({right, wrong});
  const auto results = target.Await(2);
  EXPECT(results.size() == 2 && results[0].is_done && !results[1].is_done);
}

TEST(AnOrderThatDoesNotFitTheMemoryFails) {
  const Holder holder(SameHost::kShm);
  Target target(SameHost::kShm);
  auto few = OrderOf(2, 0, {&holder});
  few.checksums.pop_back();
  auto nowhere = OrderOf(3, 0, {&holder});
  nowhere.sources[0].node = 5;
  target.Ask({OrderOf(1, kLentBytes - 100, {&holder}), few, nowhere});
  for (const CopyResult& result : target.Await(3)) EXPECT(!result.is_done);
}

TEST(WhatIsDoneIsNotDoneAgainWhileTheMasterHasNotHeardOfIt) {
  const Holder holder(SameHost::kShm);
  Target target(SameHost::kShm);
  const auto first = OrderOf(1, 0, {&holder}), second = OrderOf(2, 1 << 20, {&holder});
  target.Ask({first});
  target.Await(1);
  std::memset(target.segment->data(), 0, kHeaderBytes);  // it is the master's to use now
  target.Ask({first, second});
  const auto results = target.Await(2);
  EXPECT(results.size() == 2 && target.Holds(1 << 20, holder));
  EXPECT(!target.Holds(0, holder));
}

TEST(WhatIsForgottenIsNeitherReportedNorWrittenAnyMore) {
  const Holder holder(SameHost::kShm);
  Target target(SameHost::kShm);
  std::vector<CopyOrder> orders;
  for (uint64_t id = 1; id <= 4; ++id) orders.push_back(OrderOf(id, id * (768 << 10), {&holder}));
  target.Ask(std::move(orders));
  target.copier().Forget();
  EXPECT(target.copier().Finished().empty());
  EXPECT(target.engine->CloseSegment(*target.segment));
  target.segment = target.engine->CreateSegment(kLentBytes).value();
  target.Ask({OrderOf(9, 0, {&holder})});
  while (target.copier().Finished().empty()) target.Await(1);
  EXPECT(target.copier().Finished()[0].order == 9 && target.Holds(0, holder));
}

}  // namespace
}  // namespace mooncake::store

RUN_TESTS()
