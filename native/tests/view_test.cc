// Views: how long the memory stays, who waits for them, and who does not.
#include "transfer/view.h"

#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include "base/check.h"
#include "tests/test.h"
#include "transfer/engine.h"

namespace mooncake {
namespace {

constexpr uint64_t kBytes = 1 << 20;

Deadline Soon() { return Deadline::After(20); }
Deadline AtOnce() { return Deadline::After(0.05); }

std::shared_ptr<Engine> NewEngine(SameHost same_host = SameHost::kShm) {
  return Engine::Create({.same_host = same_host}).value();
}

bool IsFilledWith(const View& view, uint8_t byte) {
  for (uint64_t i = 0; i < view.size_bytes(); ++i) {
    if (view.data()[i] != byte) return false;
  }
  return true;
}

// An owner of a segment full of sevens, and a user that has it open.
struct Bed {
  explicit Bed(SameHost same_host = SameHost::kShm)
      : owner(NewEngine(same_host)),
        user(NewEngine(same_host)),
        segment(owner->CreateSegment(kBytes).value()),
        peer_id(user->peer_id()),
        remote(user->OpenSegment(owner->endpoint(), segment->id(), Soon()).value()) {
    std::memset(segment->data(), 7, kBytes);
  }
  std::shared_ptr<View> Map() const { return user->Map(remote, 0, kBytes, Soon()).value(); }
  // By the owner, of the id that the user had at first.
  bool Fence(Deadline deadline) const { return owner->Fence(peer_id, deadline).value(); }

  std::shared_ptr<Engine> owner;
  std::shared_ptr<Engine> user;
  std::shared_ptr<Segment> segment;
  uint64_t peer_id;
  std::shared_ptr<RemoteSegment> remote;
};

TEST(AViewShowsTheOwnersBytes) {
  const Bed bed;
  const auto view = bed.user->Map(bed.remote, 4097, 100, Soon()).value();
  EXPECT(view->size_bytes() == 100 && IsFilledWith(*view, 7));
  std::memset(bed.segment->data() + 4097, 8, 100);
  EXPECT(IsFilledWith(*view, 8));
  EXPECT(bed.user->Map(bed.remote, kBytes, 0, Soon()).value()->size_bytes() == 0);
}

TEST(WhatCannotBeViewedIsRefused) {
  const Bed bed;
  EXPECT(bed.user->Map(bed.remote, kBytes, 1, Soon()).status().code() == Code::kInvalidArgument);
  EXPECT(bed.user->Map(bed.remote, 1, UINT64_MAX, Soon()).status().code() ==
         Code::kInvalidArgument);
  const Bed far(SameHost::kNetwork);
  EXPECT(far.user->Map(far.remote, 0, 1, Soon()).status().code() == Code::kUnavailable);
  std::vector<uint8_t> memory(kBytes);
  const auto lent = bed.owner->Lend(reinterpret_cast<uint64_t>(memory.data()), kBytes).value();
  const auto remote = bed.user->OpenSegment(bed.owner->endpoint(), lent->id(), Soon()).value();
  EXPECT(bed.user->Map(remote, 0, 1, Soon()).status().code() == Code::kUnavailable);
}

TEST(AFenceWaitsForTheLastView) {
  const Bed bed;
  auto first = bed.Map();
  auto second = bed.Map();
  EXPECT(!bed.Fence(AtOnce()));
  EXPECT(bed.user->Map(bed.remote, 0, 1, Soon()).status().code() == Code::kFenced);
  first.reset();
  EXPECT(!bed.Fence(AtOnce()));
  EXPECT(IsFilledWith(*second, 7));
  second.reset();
  EXPECT(bed.Fence(Soon()));
}

TEST(AFenceDoesNotWaitForViewsThatAreGone) {
  const Bed bed;
  bed.Map().reset();
  EXPECT(bed.Fence(Soon()));
  const Bed other;
  EXPECT(other.Fence(Soon()));  // it has only opened the segment
  EXPECT(other.user->Map(other.remote, 0, 1, Soon()).status().code() == Code::kFenced);
}

TEST(RotateDoesNotWaitForViewsNorUnmapThem) {
  Bed bed;
  auto view = bed.Map();
  EXPECT(bed.user->Rotate().ok());
  EXPECT(bed.user->Map(bed.remote, 0, 1, Soon()).status().code() == Code::kFenced);
  bed.remote.reset();
  EXPECT(IsFilledWith(*view, 7));
  EXPECT(!bed.Fence(AtOnce()));
  view.reset();
  EXPECT(bed.Fence(Soon()));
}

TEST(AViewOutlivesItsEngine) {
  Bed bed;
  auto view = bed.Map();
  bed.user->Close();
  EXPECT(bed.user->Map(bed.remote, 0, 1, Soon()).status().code() == Code::kClosed);
  bed.remote.reset();
  bed.user.reset();
  EXPECT(IsFilledWith(*view, 7));
  EXPECT(!bed.Fence(AtOnce()));
  view.reset();
  EXPECT(bed.Fence(Soon()));
}

// The owner hears that a view is gone though whoever had it closes without having listened.
TEST(WhatIsSaidLastIsHeard) {
  for (int round = 0; round < 40; ++round) {
    Bed bed;
    auto view = bed.Map();
    bed.user.reset();
    bed.remote.reset();
    if (round % 2 == 0) EXPECT(!bed.Fence(Deadline::After(0)));
    view.reset();
    EXPECT(bed.Fence(Soon()));
  }
}

TEST(AViewOutlivesTheSegmentAndItsOwner) {
  Bed bed;
  const auto view = bed.Map();
  EXPECT(bed.owner->CloseSegment(*bed.segment));
  bed.segment.reset();
  EXPECT(bed.user->Map(bed.remote, 0, 1, Soon()).status().code() == Code::kNotFound);
  EXPECT(IsFilledWith(*view, 7));
  bed.owner.reset();
  EXPECT(IsFilledWith(*view, 7));
}

TEST(AWriterWithViewsIsFencedOnceTheyAreGone) {
  const Bed bed;
  uint8_t byte = 9;
  const auto address = reinterpret_cast<uint64_t>(&byte);
  EXPECT(bed.user->RegisterBuffer(address, 1).ok());
  const Piece piece{address, 0, 1};
  EXPECT(bed.user->Execute(Op::kWrite, bed.remote, {&piece, 1}, {Soon()}).ok());
  auto view = bed.Map();
  EXPECT(view->data()[0] == 9);
  EXPECT(!bed.Fence(AtOnce()));
  EXPECT(bed.user->Execute(Op::kWrite, bed.remote, {&piece, 1}, {Soon()}).code() == Code::kFenced);
  EXPECT(view->data()[0] == 9);
  view.reset();
  EXPECT(bed.Fence(Soon()));
}

TEST(ViewsComeAndGoWhileOthersReadAndTheIdIsRotated) {
  const Bed bed;
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, i] {
      const auto local = bed.user->CreateSegment(4096).value();
      const Piece piece{local->address(), 4096u * i, 4096};
      std::shared_ptr<View> last;
      for (int round = 0; round < 60; ++round) {
        const auto remote = bed.user->OpenSegment(bed.owner->endpoint(), bed.segment->id(), Soon());
        if (!remote.ok()) continue;  // rotated meanwhile
        const auto view = bed.user->Map(remote.value(), 0, kBytes, Soon());
        if (last != nullptr) EXPECT(last->data()[kBytes - 1] == 7);
        last = view.ok() ? view.value() : nullptr;
        (void)bed.user->Execute(Op::kRead, remote.value(), {&piece, 1}, {Soon()});
        if (i == 0 && round % 10 == 9) EXPECT(bed.user->Rotate().ok());
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT(bed.Fence(Soon()));
}

TEST(AForkedChildThatDropsAViewChangesNothing) {
  Bed bed;
  auto view = bed.Map();
  const pid_t child = fork();
  if (child == 0) {
    view.reset();
    bed.remote.reset();
    _exit(0);
  }
  int status = -1;
  EXPECT(waitpid(child, &status, 0) == child && status == 0);
  EXPECT(IsFilledWith(*view, 7));
  EXPECT(!bed.Fence(AtOnce()));
  view.reset();
  EXPECT(bed.Fence(Soon()));
}

// Opens a segment of its parent, maps it, and does nothing more.
class Viewer {
 public:
  Viewer() {
    MC_CHECK(pipe(to_) == 0 && pipe(from_) == 0, "pipe");
    pid_ = fork();
    if (pid_ == 0) Run();
  }
  // Its peer id, once it has a view.
  uint64_t See(const Engine& owner, uint64_t segment_id) {
    const std::string endpoint = owner.endpoint();
    MC_CHECK(write(to_[1], &segment_id, sizeof segment_id) == sizeof segment_id, "pipe");
    MC_CHECK(write(to_[1], endpoint.c_str(), endpoint.size() + 1) > 0, "pipe");
    uint64_t peer_id = 0;
    MC_CHECK(read(from_[0], &peer_id, sizeof peer_id) == sizeof peer_id, "pipe");
    return peer_id;
  }
  void Kill() {
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }

 private:
  [[noreturn]] void Run() {
    uint64_t segment_id = 0;
    char endpoint[64] = {};
    MC_CHECK(read(to_[0], &segment_id, sizeof segment_id) == sizeof segment_id, "pipe");
    MC_CHECK(read(to_[0], endpoint, sizeof endpoint) > 0, "pipe");
    const auto engine = NewEngine();
    const auto remote = engine->OpenSegment(endpoint, segment_id, Soon()).value();
    const auto view = engine->Map(remote, 0, kBytes, Soon()).value();
    const uint64_t peer_id = engine->peer_id();
    MC_CHECK(write(from_[1], &peer_id, sizeof peer_id) == sizeof peer_id, "pipe");
    for (;;) pause();
  }

  int to_[2];
  int from_[2];
  pid_t pid_ = 0;
};

TEST(AFenceWaitsForViewsUntilTheirProcessIsDead) {
  Viewer viewer;
  const auto owner = NewEngine();
  const auto segment = owner->CreateSegment(kBytes).value();
  const uint64_t peer_id = viewer.See(*owner, segment->id());
  EXPECT(!owner->Fence(peer_id, AtOnce()).value());
  viewer.Kill();
  EXPECT(owner->Fence(peer_id, Soon()).value());
}

}  // namespace
}  // namespace mooncake

RUN_TESTS()
