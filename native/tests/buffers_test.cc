// Which local memory batches may touch, and how batches are cut.
#include "transfer/buffers.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <future>
#include <optional>
#include <random>
#include <thread>
#include <tuple>
#include <vector>

#include "tests/test.h"
#include "transfer/location.h"

namespace mooncake {
namespace {

bool Allows(BufferTable& table, uint64_t address, uint64_t length, Op op = Op::kRead) {
  const Piece piece{address, 0, length};
  return table.Use(op, {&piece, 1}).ok();
}

TEST(OverlapsAreCounted) {
  BufferTable table;
  EXPECT(table.Register(100, 50, Access::kBoth).ok());
  EXPECT(table.Register(100, 50, Access::kBoth).ok());
  EXPECT(table.Register(140, 60, Access::kBoth).ok());
  EXPECT(Allows(table, 100, 100) && !Allows(table, 100, 101) && !Allows(table, 99, 1));
  EXPECT(table.Unregister(100, 50, Access::kBoth).ok());
  EXPECT(Allows(table, 100, 100));
  EXPECT(table.Unregister(100, 50, Access::kBoth).ok());
  EXPECT(Allows(table, 140, 60) && !Allows(table, 139, 1));
  EXPECT(table.Unregister(100, 50, Access::kBoth).code() == Code::kBufferNotRegistered);
}

// Against a count for every byte.
TEST(WhatMayBeUsedIsTheUnionOfWhatIsRegistered) {
  constexpr uint64_t kBytes = 64;
  std::mt19937 random(1);
  BufferTable table;
  std::vector<std::tuple<uint64_t, uint64_t, Access>> registered;
  std::array<int, kBytes> sources{}, targets{};
  const auto count = [&](uint64_t address, uint64_t size, Access access, int change) {
    for (uint64_t at = address; at < address + size; ++at) {
      sources[at] += change;
      targets[at] += access == Access::kBoth ? change : 0;
    }
  };
  for (int round = 0; round < 2'000; ++round) {
    if (registered.size() < 2 || (registered.size() < 9 && random() % 2 == 0)) {
      const uint64_t address = random() % kBytes;
      const uint64_t size = 1 + random() % std::min<uint64_t>(12, kBytes - address);
      const Access access = random() % 2 == 0 ? Access::kBoth : Access::kSource;
      EXPECT(table.Register(address, size, access).ok());
      registered.emplace_back(address, size, access);
      count(address, size, access, 1);
    } else {
      std::swap(registered[random() % registered.size()], registered.back());
      const auto [address, size, access] = registered.back();
      registered.pop_back();
      EXPECT(table.Unregister(address, size, access).ok());
      count(address, size, access, -1);
    }
    for (uint64_t begin = 0; begin < kBytes; ++begin) {
      bool is_source = true, is_target = true;
      for (uint64_t end = begin + 1; end <= std::min(kBytes, begin + 20); ++end) {
        is_source = is_source && sources[end - 1] > 0;
        is_target = is_target && targets[end - 1] > 0;
        if (end - begin == 1 || end - begin == 7 || end - begin == 20) {
          EXPECT(Allows(table, begin, end - begin, Op::kWrite) == is_source);
          EXPECT(Allows(table, begin, end - begin, Op::kRead) == is_target);
        }
      }
    }
  }
}

TEST(SourcesAreNotTargets) {
  BufferTable table;
  EXPECT(table.Register(100, 50, Access::kSource).ok());
  EXPECT(Allows(table, 100, 50, Op::kWrite) && !Allows(table, 100, 50, Op::kRead));
}

TEST(RangesThatWrapAreRefused) {
  BufferTable table;
  EXPECT(!table.Register(100, 0, Access::kBoth).ok());
  EXPECT(!table.Register(UINT64_MAX - 5, 10, Access::kBoth).ok());
  EXPECT(table.Register(100, 50, Access::kBoth).ok());
  EXPECT(!Allows(table, 120, UINT64_MAX) && !Allows(table, UINT64_MAX, 2));
}

TEST(UnregisterWaitsForBatchesThatUseTheRangeAndForNoOthers) {
  BufferTable table;
  EXPECT(table.Register(1000, 100, Access::kBoth).ok());
  EXPECT(table.Register(5000, 100, Access::kBoth).ok());
  const Piece piece{1000, 0, 10};
  std::optional<BufferTable::Claim> claim = table.Use(Op::kRead, {&piece, 1}).value();
  EXPECT(table.Unregister(5000, 100, Access::kBoth).ok());
  std::atomic<bool> is_dropped = false;
  std::thread other([&] {
    EXPECT(table.Unregister(1000, 100, Access::kBoth).ok());
    EXPECT(is_dropped);
  });
  while (Allows(table, 1000, 10)) std::this_thread::yield();
  is_dropped = true;
  claim.reset();
  other.join();
}

TEST(UnregisterDoesNotWaitForBatchesThatBeganLater) {
  BufferTable table;
  EXPECT(table.Register(1000, 100, Access::kBoth).ok());
  EXPECT(table.Register(1050, 100, Access::kBoth).ok());
  const Piece piece{1060, 0, 10};
  std::optional<BufferTable::Claim> before = table.Use(Op::kRead, {&piece, 1}).value();
  auto closing = std::async(std::launch::async,
                            [&] { EXPECT(table.Unregister(1000, 100, Access::kBoth).ok()); });
  while (Allows(table, 1000, 10)) std::this_thread::yield();
  std::optional<BufferTable::Claim> later = table.Use(Op::kRead, {&piece, 1}).value();
  before.reset();
  EXPECT(closing.wait_for(std::chrono::seconds(2)) == std::future_status::ready);
  later.reset();
}

TEST(MemoryOfTwoDevicesIsNeitherMergedNorOverlaid) {
  BufferTable table;
  EXPECT(table.Register(1000, 100, Access::kBoth).ok());
  EXPECT(table.Register(1100, 100, Access::kBoth, 1).ok());
  EXPECT(table.Register(1150, 100, Access::kBoth).code() == Code::kInvalidArgument);
  EXPECT(table.Register(1100, 100, Access::kSource, 0).code() == Code::kInvalidArgument);
  EXPECT(Allows(table, 1000, 100) && Allows(table, 1100, 100) && !Allows(table, 1050, 100));
  const std::vector<Piece> pieces = {{1190, 0, 10}, {1000, 0, 1}, {1110, 0, 1}, {1090, 0, 5}};
  const auto claim = table.Use(Op::kRead, pieces).value();
  const BufferTable::Footprint& used = claim.footprint();
  EXPECT(used.ranges.size() == 2 && used.is_on_device());
  EXPECT(used.ranges[0].begin == 1000 && used.ranges[0].end == 1095);
  EXPECT(used.ranges[1].begin == 1110 && used.ranges[1].end == 1200);
  EXPECT(used.DeviceOf(1000) == BufferTable::kHost && used.DeviceOf(1195) == 1);
}

TEST(ARepeatedBatchIsWalkedAgainOnlyAfterARegistration) {
  BufferTable table;
  EXPECT(table.Register(1000, 100, Access::kBoth).ok());
  const Piece piece{1000, 0, 10};
  BufferTable::SharedFootprint known;
  {
    const auto first = table.Use(Op::kRead, {&piece, 1}, known).value();
  }
  const auto before = known;
  {
    const auto second = table.Use(Op::kRead, {&piece, 1}, known).value();
  }
  EXPECT(known == before);
  EXPECT(table.Register(5000, 100, Access::kBoth).ok());
  {
    const auto third = table.Use(Op::kRead, {&piece, 1}, known).value();
  }
  EXPECT(known != before);
  EXPECT(table.Unregister(1000, 100, Access::kBoth).ok());
  EXPECT(table.Use(Op::kRead, {&piece, 1}, known).status().code() == Code::kBufferNotRegistered);
}

TEST(ABatchIsWhereItsFirstPieceIs) {
  const std::vector<uint8_t> memory(8192);
  const uint64_t address = reinterpret_cast<uint64_t>(memory.data());
  BufferTable table({CpuLocation(address), "cuda:1"});
  EXPECT(table.Register(address, memory.size(), Access::kBoth).ok());
  EXPECT(table.Register(1000, 100, Access::kBoth, 0).ok());
  EXPECT(table.Register(2000, 100, Access::kBoth, 1).ok());
  const Piece host{address + 5000, 0, 10}, unnamed{1000, 0, 10}, named{2000, 0, 10};
  const auto location = [&](const std::vector<Piece>& pieces) {
    return table.Use(Op::kWrite, pieces).value().footprint().location;
  };
  EXPECT(location({host, named}) == 0 && location({named, host}) == 1);
  EXPECT(location({unnamed, host}) == -1 && location({}) == -1);
}

TEST(MemoryThatIsNotThereIsAtTheFirstNode) {
  EXPECT(CpuLocation(1000) == "cpu:0");
  EXPECT(CudaLocation(3) == "cuda:3");
}

}  // namespace
}  // namespace mooncake

RUN_TESTS()
