// Batches that are submitted, cancelled, prepared and told of, under concurrency; meant for the
// sanitizers.
#include <atomic>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "tests/test.h"
#include "transfer/engine.h"

namespace mooncake {
namespace {

constexpr SameHost kBothWays[] = {SameHost::kShm, SameHost::kNetwork};

Deadline Soon() { return Deadline::After(20); }

// An owner with a segment, and a user that has it open, with local memory as large.
struct Pair {
  Pair(SameHost same_host, uint64_t size_bytes)
      : owner(New(same_host)),
        user(New(same_host)),
        segment(owner->CreateSegment(size_bytes).value()),
        local(user->CreateSegment(size_bytes).value()),
        remote(user->OpenSegment(owner->endpoint(), segment->id(), Soon()).value()) {}

  static std::shared_ptr<Engine> New(SameHost same_host) {
    EngineOptions options;
    options.same_host = same_host;
    return Engine::Create(options).value();
  }

  std::shared_ptr<Engine> owner;
  std::shared_ptr<Engine> user;
  std::shared_ptr<Segment> segment;
  std::shared_ptr<Segment> local;
  std::shared_ptr<RemoteSegment> remote;
};

constexpr uint64_t kStride = 128 << 10;

// Submits many small reads and a few large ones, and cancels every third.
void SubmitAndCancel(const Pair& pair, int index) {
  std::vector<std::shared_ptr<Transfer>> transfers;
  for (uint64_t i = 0; i < 100; ++i) {
    const uint64_t at = (static_cast<uint64_t>(index) << 24) + i * kStride;
    const uint64_t length = i % 20 == 0 ? kStride : 512;
    BatchOptions options{Soon(), i % 2 == 0 ? Priority::kForeground : Priority::kBackground};
    const Piece piece{pair.local->address() + at, at, length};
    auto transfer = pair.user->Submit(Op::kRead, pair.remote, {piece}, options);
    EXPECT(transfer.ok());
    if (i % 3 == 0) transfer.value()->Cancel();
    transfers.push_back(std::move(transfer).value());
  }
  for (size_t i = 0; i < transfers.size(); ++i) {
    const auto status = transfers[i]->Wait(Soon());
    EXPECT(status && (status->ok() || (i % 3 == 0 && status->code() == Code::kCancelled)));
    EXPECT(!status->is_dirty());
  }
}

TEST(OnlyWhatIsCancelledIsCancelled) {
  for (const SameHost same_host : kBothWays) {
    const Pair pair(same_host, 48 << 20);
    std::memset(pair.segment->data(), 7, 48 << 20);
    std::vector<std::thread> threads;
    for (int i = 0; i < 3; ++i) threads.emplace_back([&, i] { SubmitAndCancel(pair, i); });
    for (auto& thread : threads) thread.join();
    for (uint64_t i = 0; i < 3; ++i) {
      EXPECT(pair.local->data()[(i << 24) + kStride + 511] == 7);  // the second was not cancelled
    }
  }
}

TEST(ClosingEndsAllThatWait) {
  for (const SameHost same_host : kBothWays) {
    const Pair pair(same_host, 8 << 20);
    std::vector<std::shared_ptr<Transfer>> transfers;
    for (uint64_t i = 0; i < 50; ++i) {
      const Piece piece{pair.local->address() + i * kStride, i * kStride, kStride};
      transfers.push_back(pair.user->Submit(Op::kWrite, pair.remote, {piece}, {Soon()}).value());
    }
    std::thread canceller([&] {
      for (size_t i = 0; i < transfers.size(); i += 2) transfers[i]->Cancel();
    });
    pair.user->Close();
    canceller.join();
    for (const auto& transfer : transfers) {
      const auto status = transfer->Wait(Soon());
      EXPECT(status && (status->ok() || status->code() == Code::kClosed ||
                        status->code() == Code::kCancelled));
    }
  }
}

TEST(NotificationsOfManyThreadsAllArrive) {
  for (const SameHost same_host : kBothWays) {
    const Pair pair(same_host, 4096);
    constexpr int kThreads = 4, kEach = 100;
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      threads.emplace_back([&, i] {
        const uint64_t at = 64u * i;
        for (int round = 0; round < kEach; ++round) {
          const Piece piece{pair.local->address() + at, at, 64};
          EXPECT(pair.user->Execute(Op::kWrite, pair.remote, {&piece, 1}, {Soon()}, "x").ok());
        }
      });
    }
    size_t got = 0;
    while (got < kThreads * kEach) {
      const auto taken = pair.owner->TakeNotifications(10).value();
      for (const Notification& each : taken) EXPECT(each.peer_id == pair.user->peer_id());
      got += taken.size();
    }
    for (auto& thread : threads) thread.join();
    EXPECT(pair.owner->TakeNotifications(10).value().empty());
  }
}

TEST(PreparedTransfersAreRunWhileRegistrationsChange) {
  for (const SameHost same_host : kBothWays) {
    const Pair pair(same_host, 1 << 16);
    const auto shared = pair.user->Prepare(Op::kRead, pair.remote, {}).value();
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, at = 4096u * i] {
        const Piece piece{pair.local->address() + at, at, 4096};
        const auto own = pair.user->Prepare(Op::kRead, pair.remote, {&piece, 1}).value();
        std::vector<uint8_t> passing(100);
        const auto address = reinterpret_cast<uint64_t>(passing.data());
        for (int round = 0; round < 50; ++round) {
          EXPECT(pair.user->RegisterBuffer(address, 100).ok());
          for (const auto& prepared : {own, shared}) {
            EXPECT(pair.user->Execute(*prepared, {Soon()}).ok());
            EXPECT(pair.user->Submit(*prepared, {Soon()}).value()->Wait(Soon())->ok());
          }
          EXPECT(pair.user->UnregisterBuffer(address, 100).ok());
        }
      });
    }
    for (auto& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace mooncake

RUN_TESTS()
