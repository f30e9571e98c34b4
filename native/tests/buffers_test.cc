// Which local memory batches may touch, and how batches are cut.
#include "transfer/buffers.h"

#include <atomic>
#include <optional>
#include <thread>
#include <vector>

#include "tests/test.h"
#include "transfer/slicer.h"

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

TEST(SlicesCoverABatchInOrder) {
  const std::vector<Piece> pieces = {
      {0, 10, 0}, {1 << 20, 0, 5 * kRequestBytes / 2}, {7, 9, 1}, {8, 8, 0}};
  Slicer slicer(pieces);
  std::vector<Piece> request;
  uint64_t total = 0;
  int requests = 0;
  while (!slicer.done()) {
    slicer.Next(request);
    EXPECT(!request.empty() && TotalBytes(request) <= kRequestBytes);
    total += TotalBytes(request);
    ++requests;
  }
  EXPECT(total == TotalBytes(pieces) && requests == 3);
  EXPECT(Slicer({}).done());
}

}  // namespace
}  // namespace mooncake

RUN_TESTS()
