// Copies that several threads share: the team itself, and batches that it helps with.
#include "transfer/copy_team.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <functional>
#include <random>
#include <set>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/crc32c.h"
#include "tests/test.h"
#include "transfer/engine.h"

namespace mooncake {
namespace {

Deadline Later() { return Deadline::After(20); }

// True once it is, within 20 s.
bool Eventually(const std::function<bool()>& is_so) {
  const Deadline deadline = Later();
  while (!is_so()) {
    if (deadline.passed()) return false;
    std::this_thread::yield();
  }
  return true;
}

TEST(EachStepIsTakenOnce) {
  for (const int helpers : {0, 1, 3}) {
    CopyTeam team(helpers);
    for (size_t count = 0; count < 200; ++count) {
      std::vector<std::atomic<int>> taken(count);
      const Status status = team.Run(count, [&](size_t at) {
        ++taken[at];
        return Status::Ok();
      });
      EXPECT(status.ok());
      for (const auto& times : taken) EXPECT(times == 1);
    }
  }
}

// Each of two threads is amid a step when the other is: the caller's and a helper.
TEST(AHelperTakesStepsWhileTheCallerIsBusy) {
  CopyTeam team(1);
  std::atomic<int> begun = 0;
  const Status status = team.Run(2, [&](size_t) {
    ++begun;
    return Eventually([&] { return begun == 2; }) ? Status::Ok() : Status(Code::kTimeout, "alone");
  });
  EXPECT(status.ok());
}

TEST(ACallerDoesItAloneWhileHelpersAreBusy) {
  CopyTeam team(1);
  std::atomic<int> begun = 0;
  std::atomic<bool> may_end = false;
  std::thread first([&] {
    (void)team.Run(2, [&](size_t) {
      ++begun;
      EXPECT(Eventually([&] { return may_end.load(); }));
      return Status::Ok();
    });
  });
  EXPECT(Eventually([&] { return begun == 2; }));
  std::set<std::thread::id> threads;
  const Status status = team.Run(50, [&](size_t) {
    threads.insert(std::this_thread::get_id());
    return Status::Ok();
  });
  EXPECT(status.ok());
  EXPECT(threads == std::set{std::this_thread::get_id()});
  may_end = true;
  first.join();
}

TEST(AfterAFailureNoStepBegins) {
  CopyTeam team(2);
  std::atomic<int> begun = 0;
  const Status status = team.Run(100'000, [&](size_t at) {
    ++begun;
    return at == 3 ? Status(Code::kClosed, "the third") : Status::Ok();
  });
  EXPECT(status.code() == Code::kClosed);
  EXPECT(begun < 100'000);
  EXPECT(team.Run(10, [](size_t) { return Status::Ok(); }).ok());
}

// What a job used may go as soon as Run has returned.
TEST(NoHelperIsAmidAStepAfterRun) {
  CopyTeam team(3);
  for (int round = 0; round < 2'000; ++round) {
    std::vector<int> results(5);
    const auto fill = [&](size_t at) {
      results[at] = round;
      return at == 4 && round % 3 == 0 ? Status(Code::kCancelled, "no more") : Status::Ok();
    };
    (void)team.Run(results.size(), fill);
    results.assign(results.size(), -1);
    EXPECT(results == std::vector<int>(5, -1));
  }
}

TEST(ManyCallersAtOnceGetWhatIsTheirs) {
  CopyTeam team(2);
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 6; ++caller) {
    callers.emplace_back([&team, caller] {
      for (int round = 0; round < 300; ++round) {
        std::atomic<int> sum = 0;
        const Status status = team.Run(20, [&](size_t at) {
          sum += static_cast<int>(at);
          return at == 19 && caller == 1 ? Status(Code::kCancelled, "of one") : Status::Ok();
        });
        EXPECT(status.ok() == (caller != 1));
        EXPECT(caller == 1 || sum == 190);
      }
    });
  }
  for (auto& caller : callers) caller.join();
}

TEST(AJobThatIsUnderWayEndsWellWhenTheTeamStops) {
  for (int round = 0; round < 50; ++round) {
    CopyTeam team(2);
    std::atomic<int> taken = 0;
    std::atomic<bool> has_begun = false;
    std::thread caller([&] {
      const Status status = team.Run(500, [&](size_t) {
        has_begun = true;
        ++taken;
        return Status::Ok();
      });
      EXPECT(status.ok() && taken == 500);
    });
    EXPECT(Eventually([&] { return has_begun.load(); }));
    team.Stop();
    caller.join();
    EXPECT(team.Run(3, [](size_t) { return Status::Ok(); }).ok());
  }
}

// An owner with a segment, and a user whose local memory has room to write from and to read into.
struct Shared {
  static constexpr uint64_t kBytes = 6u << 20;

  explicit Shared(int copy_threads = 3)
      : owner(Engine::Create({}).value()),
        user(Engine::Create({.copy_threads = copy_threads}).value()),
        segment(owner->CreateSegment(kBytes).value()),
        local(user->CreateSegment(2 * kBytes).value()),
        remote(user->OpenSegment(owner->endpoint(), segment->id(), Later()).value()) {}

  std::shared_ptr<Engine> owner, user;
  std::shared_ptr<Segment> segment, local;
  std::shared_ptr<RemoteSegment> remote;
};

// Pieces of all lengths that cover [begin, end) of a segment.
std::vector<Piece> RandomCuts(std::mt19937_64& random, uint64_t address, uint64_t begin,
                              uint64_t end) {
  std::vector<Piece> pieces;
  while (begin < end) {
    const uint64_t most = uint64_t{1} << (random() % 23);
    const uint64_t length = std::min(random() % (most + 1), end - begin);
    pieces.push_back({address + begin, begin, length});
    begin += length;
  }
  std::shuffle(pieces.begin(), pieces.end(), random);
  return pieces;
}

// Writes [begin, end) in random cuts, reads it back in others; looks at bytes and checksums.
void WriteAndReadCuts(const Shared& bed, uint64_t begin, uint64_t end, uint64_t seed) {
  std::mt19937_64 random(seed);
  uint8_t* source = bed.local->data();
  uint8_t* target = source + Shared::kBytes;
  for (uint64_t at = begin; at < end; ++at) source[at] = static_cast<uint8_t>(random());
  std::memset(target + begin, 0, end - begin);
  for (const Op op : {Op::kWrite, Op::kRead}) {
    const uint64_t shift = op == Op::kWrite ? 0 : Shared::kBytes;
    const auto pieces = RandomCuts(random, bed.local->address() + shift, begin, end);
    std::vector<uint32_t> checksums(pieces.size());
    const BatchOptions options{
        .deadline = Later(), .checksums = checksums, .is_cold = seed % 2 == 0};
    EXPECT(bed.user->Execute(op, bed.remote, pieces, options).ok());
    for (size_t at = 0; at < pieces.size(); ++at) {
      EXPECT(checksums[at] == Crc32c(source + pieces[at].offset, pieces[at].length));
    }
  }
  EXPECT(std::memcmp(source + begin, target + begin, end - begin) == 0);
}

TEST(SharedBatchesHaveTheirBytesAndChecksumsHoweverTheyAreCut) {
  const Shared bed;
  for (uint64_t seed = 0; seed < 8; ++seed) WriteAndReadCuts(bed, seed * 13, Shared::kBytes, seed);
}

TEST(ManyCallersShareTheirBatchesAtOnce) {
  const Shared bed;
  constexpr uint64_t kCallers = 4;
  constexpr uint64_t kShare = Shared::kBytes / kCallers;
  std::vector<std::thread> callers;
  for (uint64_t caller = 0; caller < kCallers; ++caller) {
    callers.emplace_back([&bed, caller] {
      for (uint64_t round = 0; round < 2; ++round) {
        WriteAndReadCuts(bed, caller * kShare, (caller + 1) * kShare, 2 * caller + round);
      }
    });
  }
  for (auto& caller : callers) caller.join();
}

// A word at the end of each 64 KiB: the first is a header. Who fills them does so in this order,
// and who looks at them looks at the header last: then none is newer than it.
constexpr uint64_t kWordEvery = 64u << 10;
constexpr uint64_t kFirstWord = kWordEvery - 8;

void FillWords(uint8_t* begin, uint64_t value) {
  for (uint64_t at = kFirstWord; at < Shared::kBytes; at += kWordEvery) {
    std::atomic_ref(reinterpret_cast<uint64_t&>(begin[at])).store(value);
  }
}

uint64_t WordAt(uint8_t* begin, uint64_t at) {
  return std::atomic_ref(reinterpret_cast<uint64_t&>(begin[at])).load();
}

bool IsNoneNewer(uint8_t* begin) {
  uint64_t newest = 0;
  for (uint64_t at = kFirstWord + kWordEvery; at < Shared::kBytes; at += kWordEvery) {
    newest = std::max(newest, WordAt(begin, at));
  }
  return newest <= WordAt(begin, kFirstWord);
}

TEST(WhatIsBeforeTheBarrierOfASharedBatchMovesFirst) {
  const Shared bed;
  uint8_t* const local = bed.local->data();
  uint8_t* const lent = bed.segment->data();
  const Piece head{bed.local->address() + kFirstWord, kFirstWord, 8};
  const Piece rest{bed.local->address() + kWordEvery, kWordEvery, Shared::kBytes - kWordEvery};
  const Piece writes[] = {head, rest}, reads[] = {rest, head};
  std::atomic<bool> is_over = false;
  std::thread watcher([&] {
    while (!is_over) EXPECT(IsNoneNewer(lent));
  });
  for (uint64_t value = 1; value < 100; ++value) {
    FillWords(local, value);
    const BatchOptions options{.deadline = Later(), .barrier = 1, .is_cold = true};
    EXPECT(bed.user->Execute(Op::kWrite, bed.remote, writes, options).ok());
  }
  is_over = true;
  watcher.join();
  is_over = false;
  std::thread filler([&] {
    for (uint64_t value = 100; !is_over; ++value) FillWords(lent, value);
  });
  for (int round = 0; round < 100; ++round) {
    const BatchOptions options{.deadline = Later(), .barrier = 1, .is_cold = true};
    EXPECT(bed.user->Execute(Op::kRead, bed.remote, reads, options).ok());
    EXPECT(IsNoneNewer(local));
  }
  is_over = true;
  filler.join();
}

TEST(NothingIsWrittenAfterASharedBatchThatRanOutOfTime) {
  const Shared bed;
  int late = 0;
  const Piece all{bed.local->address(), 0, Shared::kBytes};
  for (int round = 0; round < 40; ++round) {
    std::memset(bed.segment->data(), 0xee, Shared::kBytes);
    const BatchOptions options{Deadline::After(round * 50e-6)};
    late += bed.user->Execute(Op::kWrite, bed.remote, {&all, 1}, options).code() == Code::kTimeout;
    std::memset(bed.segment->data(), 0xee, Shared::kBytes);
    EXPECT(std::ranges::count(std::span(bed.segment->data(), Shared::kBytes), 0xee) ==
           Shared::kBytes);
  }
  EXPECT(late > 0);
}

TEST(AnEngineClosesWhileItsBatchesAreShared) {
  for (int round = 0; round < 10; ++round) {
    const Shared bed;
    std::atomic<int> written = 0;
    std::thread writer([&] {
      const Piece all{bed.local->address(), 0, Shared::kBytes};
      Status status;
      for (; status.ok(); ++written) {
        status = bed.user->Execute(Op::kWrite, bed.remote, {&all, 1}, {Later()});
      }
      EXPECT(status.code() == Code::kClosed);
    });
    EXPECT(Eventually([&] { return written > 0; }));
    bed.user->Close();
    writer.join();
  }
}

TEST(ImpossibleNumbersOfCopyThreadsAreRefused) {
  for (const int threads : {-1, 65}) {
    const Status status = Engine::Create({.copy_threads = threads}).status();
    EXPECT(status.code() == Code::kInvalidArgument);
    EXPECT(status.message().find("copy_threads is " + std::to_string(threads)) == 0);
  }
}

}  // namespace
}  // namespace mooncake

RUN_TESTS()
