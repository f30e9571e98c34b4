// Which submitted batches go next, and which go together.
#include "transfer/batch_queue.h"

#include <atomic>
#include <string>
#include <thread>
#include <vector>

#include "tests/test.h"
#include "transfer/engine.h"
#include "transfer/io_pool.h"

namespace mooncake {
namespace {

constexpr uint64_t kMiB = 1 << 20;

// Makes batches that move nothing anywhere.
class Batches {
 public:
  SubmittedBatch Make(Priority priority, uint64_t size_bytes, size_t piece_count = 1) {
    const BatchOptions options{Deadline::After(20), priority};
    return {Op::kRead,
            nullptr,
            std::make_shared<const std::vector<Piece>>(piece_count),
            size_bytes,
            options,
            {},
            table_.Use(Op::kRead, {}).value(),
            std::make_shared<Transfer>()};
  }

 private:
  BufferTable table_;
};

std::string Order(BatchQueue& queue, int count, bool may_take_background = true) {
  std::string order;
  for (int i = 0; i < count; ++i) {
    const BatchGroup group = queue.Take(may_take_background);
    if (group.empty()) return order;
    order += group.front().options.priority == Priority::kForeground ? 'f' : 'b';
  }
  return order;
}

TEST(ForegroundGoesFirstAndBackgroundIsNotStarved) {
  Batches batches;
  BatchQueue queue;
  for (int i = 0; i < 20; ++i) queue.Push(batches.Make(Priority::kBackground, kMiB));
  for (int i = 0; i < 20; ++i) queue.Push(batches.Make(Priority::kForeground, kMiB));
  EXPECT(Order(queue, 24) == "ffffffffbffffffffbffffbb");
  EXPECT(Order(queue, 100, false).empty());
  EXPECT(Order(queue, 100) == std::string(16, 'b'));
}

TEST(ARunOfForegroundCountsAlsoWhileBackgroundMayNotGo) {
  Batches batches;
  BatchQueue queue;
  queue.Push(batches.Make(Priority::kBackground, kMiB));
  for (int i = 0; i < 12; ++i) queue.Push(batches.Make(Priority::kForeground, kMiB));
  EXPECT(Order(queue, 10, false) == std::string(10, 'f'));
  EXPECT(Order(queue, 3) == "bff");
}

TEST(SmallBatchesGoTogetherUpToABound) {
  Batches batches;
  BatchQueue queue;
  for (int i = 0; i < 40; ++i) {
    queue.Push(batches.Make(Priority::kForeground, BatchQueue::kSmallBytes));
    if (i == 3) queue.Push(batches.Make(Priority::kForeground, kMiB));
  }
  const size_t most = BatchQueue::kTogetherBytes / BatchQueue::kSmallBytes;
  EXPECT(queue.Take(true).size() == most);
  EXPECT(queue.Take(true).front().size_bytes == kMiB);
  EXPECT(queue.Take(true).size() == most);
  EXPECT(queue.size(Priority::kForeground) == 40 - 2 * most);
}

TEST(PiecesAreBoundedToo) {
  Batches batches;
  BatchQueue queue;
  for (int i = 0; i < 3; ++i) queue.Push(batches.Make(Priority::kForeground, 100, 200));
  queue.Push(batches.Make(Priority::kForeground, 100, BatchQueue::kTogetherPieces + 1));
  EXPECT(queue.Take(true).size() == 2);
  EXPECT(queue.Take(true).size() == 1);
  EXPECT(queue.Take(true).size() == 1);
}

TEST(BatchesThatDifferGoAlone) {
  Batches batches;
  BatchQueue queue;
  for (int i = 0; i < 5; ++i) queue.Push(batches.Make(Priority::kForeground, 100));
  SubmittedBatch noted = batches.Make(Priority::kForeground, 100);
  noted.note = "told";
  SubmittedBatch repeated = batches.Make(Priority::kForeground, 100);
  repeated.is_alone = true;
  queue.Push(std::move(noted));
  queue.Push(std::move(repeated));
  queue.Push(batches.Make(Priority::kBackground, 100));
  EXPECT(queue.Take(true).size() == 5);
  EXPECT(queue.Take(true).front().note == "told");
  EXPECT(queue.Take(true).front().is_alone);
  EXPECT(queue.Take(true).front().options.priority == Priority::kBackground);
}

TEST(WhatWaitsIsFoundByItsTransfer) {
  Batches batches;
  BatchQueue queue;
  for (int i = 0; i < 3; ++i) queue.Push(batches.Make(Priority::kBackground, kMiB));
  SubmittedBatch wanted = batches.Make(Priority::kBackground, kMiB);
  const auto transfer = wanted.transfer;
  queue.Push(std::move(wanted));
  EXPECT(queue.Remove(*transfer).front().transfer == transfer);
  EXPECT(queue.Remove(*transfer).empty());
  EXPECT(queue.RemoveAll().size() == 3);
}

TEST(AThreadStaysFreeForForegroundBatches) {
  Batches batches;
  std::atomic<int> background = 0;
  std::atomic<bool> may_end = false;
  const auto run = [&](BatchGroup group) {
    if (group.front().options.priority == Priority::kBackground) {
      ++background;
      while (!may_end) std::this_thread::yield();
    }
    for (SubmittedBatch& batch : group) batch.End(Status::Ok());
    return BatchGroup();
  };
  IoPool pool(3, run);
  std::vector<std::shared_ptr<Transfer>> late;
  for (int i = 0; i < 6; ++i) {
    late.push_back(std::make_shared<Transfer>());
    SubmittedBatch batch = batches.Make(Priority::kBackground, kMiB);
    batch.transfer = late.back();
    EXPECT(pool.Submit(std::move(batch)).ok());
  }
  for (int i = 0; i < 100; ++i) {
    SubmittedBatch batch = batches.Make(Priority::kForeground, kMiB);
    const auto transfer = batch.transfer;
    EXPECT(pool.Submit(std::move(batch)).ok());
    EXPECT(transfer->Wait(Deadline::After(20))->ok());
  }
  while (background < 2) std::this_thread::yield();
  EXPECT(background == 2);
  may_end = true;
  for (const auto& transfer : late) EXPECT(transfer->Wait(Deadline::After(20))->ok());
}

TEST(WhatIsGivenBackWaitsForAnotherTurn) {
  Batches batches;
  std::atomic<int> runs = 0;
  const auto run = [&](BatchGroup group) {
    if (++runs > 3) {
      for (SubmittedBatch& batch : group) batch.End(Status::Ok());
      return BatchGroup();
    }
    for (SubmittedBatch& batch : group) batch.is_alone = true;
    return group;
  };
  IoPool pool(2, run);
  SubmittedBatch batch = batches.Make(Priority::kForeground, 100);
  const auto transfer = batch.transfer;
  EXPECT(pool.Submit(std::move(batch)).ok());
  EXPECT(transfer->Wait(Deadline::After(20))->ok());
  EXPECT(runs == 4);
}

}  // namespace
}  // namespace mooncake

RUN_TESTS()
