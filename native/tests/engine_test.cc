// Two engines in one process, under concurrency; meant for the sanitizers.
#include "transfer/engine.h"

#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "base/check.h"
#include "tests/test.h"
#include "transfer/loop.h"

namespace mooncake {
namespace {

constexpr SameHost kBothWays[] = {SameHost::kShm, SameHost::kNetwork};

std::shared_ptr<Engine> NewEngine(SameHost same_host) {
  return Engine::Create({"127.0.0.1:0", same_host, 2}).value();
}

Deadline Soon() { return Deadline::After(20); }

// An owner with a segment, and a user with that segment open and local memory as large.
struct Pair {
  Pair(SameHost same_host, uint64_t size_bytes)
      : owner(NewEngine(same_host)),
        user(NewEngine(same_host)),
        segment(owner->CreateSegment(size_bytes).value()),
        local(user->CreateSegment(size_bytes).value()) {
    std::memset(local->data(), 1, size_bytes);
  }

  Result<std::shared_ptr<RemoteSegment>> Open() const {
    return user->OpenSegment(owner->endpoint(), segment->id(), Soon());
  }
  Status Write(const std::shared_ptr<RemoteSegment>& remote) const {
    const Piece all{local->address(), 0, local->size_bytes()};
    return user->Execute(Op::kWrite, remote, {&all, 1}, {Soon()});
  }

  std::shared_ptr<Engine> owner;
  std::shared_ptr<Engine> user;
  std::shared_ptr<Segment> segment;
  std::shared_ptr<Segment> local;
};

// Writes all of a pair's segment, again and again, on a thread of its own.
class Writer {
 public:
  Writer(const Pair& pair, std::shared_ptr<RemoteSegment> remote)
      : thread_([this, &pair, remote = std::move(remote)] {
          for (; status_.ok(); ++written_) status_ = pair.Write(remote);
        }) {
    while (written_ == 0) std::this_thread::yield();
  }
  // How it ended.
  Code Join() {
    thread_.join();
    return status_.code();
  }

 private:
  Status status_;
  std::atomic<int> written_ = 0;
  std::thread thread_;
};

std::vector<Piece> Scattered(uint64_t address, uint64_t offset, int count, uint64_t length) {
  std::vector<Piece> pieces;
  for (int i = 0; i < count; ++i) {
    const uint64_t at = static_cast<uint64_t>((i * 7) % count) * length;
    pieces.push_back({address + at, offset + at, length});
  }
  return pieces;
}

// Writes a pattern into its own share of the segment and reads it back.
void WriteAndRead(Engine& engine, const std::shared_ptr<RemoteSegment>& remote, int index) {
  constexpr int kCount = 1'000;
  constexpr uint64_t kLength = 97;
  constexpr uint64_t kShare = kCount * kLength;
  const auto local = engine.CreateSegment(2 * kShare).value();
  const auto out = Scattered(local->address(), index * kShare, kCount, kLength);
  const auto in = Scattered(local->address() + kShare, index * kShare, kCount, kLength);
  for (int round = 1; round <= 5; ++round) {
    std::memset(local->data(), index * 16 + round, kShare);
    EXPECT(engine.Execute(Op::kWrite, remote, out, {Soon()}).ok());
    const auto transfer = engine.Submit(Op::kRead, remote, in, {Soon()});
    EXPECT(transfer.ok() && transfer.value()->Wait(Soon())->ok());
    EXPECT(std::memcmp(local->data(), local->data() + kShare, kShare) == 0);
  }
  engine.CloseSegment(*local);
}

TEST(ThreadsReadWhatTheyWrote) {
  for (const SameHost same_host : kBothWays) {
    const Pair pair(same_host, 1 << 20);
    const auto remote = pair.Open().value();
    EXPECT(remote->transport() == (same_host == SameHost::kShm ? "shm" : "tcp"));
    std::vector<std::thread> threads;
    for (int i = 0; i < 6; ++i) {
      threads.emplace_back([&, i] { WriteAndRead(*pair.user, remote, i); });
    }
    for (auto& thread : threads) thread.join();
  }
}

TEST(FencesEndWritersThatAreWriting) {
  for (const SameHost same_host : kBothWays) {
    const Pair pair(same_host, 8 << 20);
    for (int round = 0; round < 5; ++round) {
      const auto remote = pair.Open().value();
      Writer writer(pair, remote);
      EXPECT(pair.owner->Fence(pair.user->peer_id(), Soon()).value());
      const uint8_t* data = pair.segment->data();
      const std::vector<uint8_t> before(data, data + pair.segment->size_bytes());
      EXPECT(writer.Join() == Code::kFenced);
      EXPECT(std::memcmp(before.data(), data, before.size()) == 0);
      EXPECT(pair.Write(remote).code() == Code::kFenced);
      EXPECT(pair.Open().status().code() == Code::kFenced);
      EXPECT(pair.user->Rotate().ok());
    }
  }
}

TEST(RotateAndCloseInterruptBatches) {
  for (const SameHost same_host : kBothWays) {
    const Pair pair(same_host, 8 << 20);
    Writer first(pair, pair.Open().value());
    EXPECT(pair.user->Rotate().ok());
    EXPECT(first.Join() == Code::kFenced);
    Writer second(pair, pair.Open().value());
    pair.user->Close();
    EXPECT(second.Join() == Code::kClosed);
  }
}

// Mapping takes a while, without the lock; Rotate must hear when it is over.
TEST(RotateWaitsForASegmentThatIsBeingMapped) {
  const Pair pair(SameHost::kShm, 64 << 20);
  for (int round = 0; round < 30; ++round) {
    const auto small = pair.owner->CreateSegment(4096).value();
    const auto connected = pair.user->OpenSegment(pair.owner->endpoint(), small->id(), Soon());
    std::atomic<bool> is_opening = false;
    std::thread opener([&] {
      is_opening = true;
      const Status status = pair.Open().status();
      EXPECT(status.ok() || status.code() == Code::kFenced);
    });
    while (!is_opening) std::this_thread::yield();
    std::this_thread::sleep_for(std::chrono::microseconds(300 * round));
    auto rotated = std::async(std::launch::async, [&] { return pair.user->Rotate().ok(); });
    MC_CHECK(rotated.wait_for(std::chrono::seconds(20)) == std::future_status::ready, "it hangs");
    EXPECT(rotated.get());
    opener.join();
    pair.owner->CloseSegment(*small);
  }
}

TEST(AnOwnerThatClosesIsUnreachable) {
  for (const SameHost same_host : kBothWays) {
    const Pair pair(same_host, 4096);
    const auto remote = pair.Open().value();
    EXPECT(pair.Write(remote).ok());
    pair.owner->Close();
    EXPECT(pair.Write(remote).code() == Code::kPeerUnreachable);
  }
}

// Each thread opens, writes its own part and lets go, while segments come and go under them.
TEST(ALoopThatHasEndedDoesNothing) {
  const auto loop = Loop::Create().value();
  EXPECT(loop->Run([] {}));
  loop->Stop();
  bool was_done = false;
  // It gets what the loop's thread has left, its id too.
  std::thread([&] { EXPECT(!loop->Run([&] { was_done = true; })); }).join();
  EXPECT(!was_done);
}

// A child that has all descriptors of this process, and does nothing.
class Child {
 public:
  Child() : pid_(fork()) {
    while (pid_ == 0) pause();
  }
  ~Child() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  const pid_t pid_;
};

TEST(ConnectionsEndThoughAForkedChildHoldsTheirDescriptors) {
  for (const SameHost same_host : kBothWays) {
    const Pair pair(same_host, 4096);
    const auto remote = pair.Open().value();
    EXPECT(pair.Write(remote).ok());
    const Child child;
    pair.owner->Close();
    const Piece all{pair.local->address(), 0, 4096};
    const BatchOptions options{Deadline::After(5)};
    EXPECT(pair.user->Execute(Op::kRead, remote, {&all, 1}, options).code() ==
           Code::kPeerUnreachable);
    EXPECT(pair.user->OpenSegment(pair.owner->endpoint(), 1, Deadline::After(5)).status().code() ==
           Code::kPeerUnreachable);
  }
}

TEST(SegmentsComeAndGoUnderTheirUsers) {
  for (const SameHost same_host : kBothWays) {
    const Pair pair(same_host, 1 << 16);
    std::atomic<bool> is_done = false;
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; ++i) {
      threads.emplace_back([&, i] {
        const Piece own{pair.local->address(), 8192u * (i + 1), 8192};
        while (!is_done) {
          const auto remote = pair.Open().value();
          EXPECT(pair.user->Execute(Op::kWrite, remote, {&own, 1}, {Soon()}).ok());
        }
      });
    }
    for (int round = 0; round < 50; ++round) {
      const auto passing = pair.owner->CreateSegment(4096).value();
      const auto remote = pair.user->OpenSegment(pair.owner->endpoint(), passing->id(), Soon());
      EXPECT(remote.ok());
      pair.owner->CloseSegment(*passing);
      const Piece piece{pair.local->address(), 0, 4096};
      const Status late = pair.user->Execute(Op::kWrite, remote.value(), {&piece, 1}, {Soon()});
      EXPECT(late.code() == Code::kNotFound);
    }
    is_done = true;
    for (auto& thread : threads) thread.join();
  }
}

}  // namespace
}  // namespace mooncake

RUN_TESTS()
