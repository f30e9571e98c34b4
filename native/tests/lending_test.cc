// Memory that is lent: who may touch it, and when it is free again.
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <csignal>
#include <cstring>
#include <thread>
#include <vector>

#include "base/check.h"
#include "tests/test.h"
#include "transfer/engine.h"
#include "transfer/transports/lent_memory.h"
#include "transfer/transports/process.h"
#include "transfer/transports/stream_copy.h"
#include "transfer/transports/tcp_lane.h"
#include "transfer/unix_socket.h"

namespace mooncake {
namespace {

Deadline Soon() { return Deadline::After(20); }

std::shared_ptr<Engine> NewEngine(SameHost same_host) {
  return Engine::Create({.listen = "127.0.0.1:0", .same_host = same_host}).value();
}

// A process that listens on a Unix socket and does nothing else.
class Listener {
 public:
  explicit Listener(const std::string& name) {
    int ready[2];
    MC_CHECK(pipe(ready) == 0, "pipe");
    pid_ = fork();
    if (pid_ == 0) {
      const auto listening = ListenUnix(name);
      MC_CHECK(write(ready[1], "", 1) == 1, "the pipe");
      for (;;) pause();
    }
    char byte;
    MC_CHECK(read(ready[0], &byte, 1) == 1, "the pipe");
    close(ready[0]);
    close(ready[1]);
    socket_ = ConnectUnix(name).value();
  }
  ~Listener() { Kill(); }
  void Kill() {
    if (pid_ == 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  pid_t pid() const { return pid_; }
  const Fd& socket() const { return socket_; }

 private:
  Fd socket_;
  pid_t pid_ = 0;
};

std::string Name(const char* what) {
  return std::string("mooncake-test-") + what + std::to_string(getpid());
}

Status Move(const Process& process, Op op, void* local, void* remote, size_t size,
            uint64_t& moved) {
  iovec here{local, size};
  iovec there{remote, size};
  return process.Move(op, {&here, 1}, {&there, 1}, moved);
}

TEST(AProcessIsReachedOnlyIfItStartedWhenItSaid) {
  const Listener other(Name("start"));
  const uint64_t started = StartTime(other.pid()).value();
  EXPECT(Process::Behind(other.socket(), started).ok());
  for (const uint64_t wrong : {started - 1, started + 1, uint64_t{0}}) {
    const Status refused = Process::Behind(other.socket(), wrong).status();
    EXPECT(refused.code() == Code::kSystem);
    EXPECT(refused.message().find("is not the one that lent the memory") != std::string::npos);
  }
}

TEST(ADeadProcessIsNeverWritten) {
  Listener other(Name("dead"));
  const auto process = Process::Behind(other.socket(), StartTime(other.pid()).value()).value();
  char theirs = 'a';  // at the same address in the forked process
  char ours = 'b';
  uint64_t moved = 0;
  EXPECT(Move(*process, Op::kWrite, &ours, &theirs, 1, moved).ok() && moved == 1);
  EXPECT(theirs == 'a');
  other.Kill();
  moved = 0;
  const Status late = Move(*process, Op::kWrite, &ours, &theirs, 1, moved);
  EXPECT(late.code() == Code::kPeerUnreachable && moved == 0);
}

std::atomic<int> alarms = 0;

TEST(SignalsDoNotMakeALivingProcessLookDead) {
  const Listener other(Name("signals"));
  const auto process = Process::Behind(other.socket(), StartTime(other.pid()).value()).value();
  const auto before = std::signal(SIGALRM, [](int) { ++alarms; });
  const itimerval often{{0, 20}, {0, 20}};
  EXPECT(setitimer(ITIMER_REAL, &often, nullptr) == 0);
  char theirs = 'a', ours = 'b';
  uint64_t moved = 0;
  int failures = 0;
  while (alarms < 5000) failures += !Move(*process, Op::kRead, &ours, &theirs, 1, moved).ok();
  const itimerval never{};
  setitimer(ITIMER_REAL, &never, nullptr);
  std::signal(SIGALRM, before);
  EXPECT(failures == 0);
}

TEST(MemoryThatEndsMidwayIsReportedWithWhatHasMoved) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  auto* memory = static_cast<uint8_t*>(
      mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  munmap(memory + page, page);
  const Listener other(Name("midway"));
  const auto process = Process::Behind(other.socket(), StartTime(other.pid()).value()).value();
  std::vector<uint8_t> local(2 * page, 1);
  uint64_t moved = 0;
  const Status cut = Move(*process, Op::kWrite, local.data(), memory, 2 * page, moved);
  EXPECT(cut.code() == Code::kNotFound && moved == page);
  munmap(memory, page);
}

TEST(AnOwnerRefusesToHaveReadOnlyMemoryWritten) {
  const auto owner = NewEngine(SameHost::kNetwork);
  const std::vector<uint8_t> lent(100, 1);
  const auto segment =
      owner->Lend(reinterpret_cast<uint64_t>(lent.data()), lent.size(), true).value();
  auto address = ParseAddress(owner->endpoint()).value();
  auto greeted = TcpLane::Connect(address, {7, 0}, Soon()).value();
  std::vector<uint8_t> other(100, 2);
  const Piece piece{reinterpret_cast<uint64_t>(other.data()), 0, 100};
  Bytes request = EncodeBatch(Message::kWrite, 9, segment->id(), {&piece, 1});
  request.insert(request.end(), other.begin(), other.end());
  const Fd& socket = greeted.lane->socket();
  EXPECT(SendAll(socket, request.data(), request.size(), Soon()).ok());
  FrameHeaderBytes bytes;
  EXPECT(RecvAll(socket, bytes.data(), bytes.size(), Soon()).ok());
  const FrameHeader header = DecodeFrameHeader(bytes).value();
  Bytes answer(header.body_bytes);
  EXPECT(RecvAll(socket, answer.data(), answer.size(), Soon()).ok());
  EXPECT(static_cast<Message>(header.type) == Message::kError);
  EXPECT(DecodeError(answer).code() == Code::kReadOnly);
  EXPECT(lent == std::vector<uint8_t>(100, 1));
  EXPECT(owner->CloseSegment(*segment, Soon()));
}

// Writers copy for as long as they may; what is freed after the closing is never written again.
TEST(LentMemoryIsQuietOnceItIsFree) {
  for (const SameHost same_host : {SameHost::kShm, SameHost::kNetwork}) {
    const auto owner = NewEngine(same_host);
    const auto user = NewEngine(same_host);
    const auto local = user->CreateSegment(4 << 20).value();
    std::memset(local->data(), 1, local->size_bytes());
    const Piece all{local->address(), 0, local->size_bytes()};
    for (int round = 0; round < 10; ++round) {
      std::vector<uint8_t> lent(4 << 20);
      const auto segment =
          owner->Lend(reinterpret_cast<uint64_t>(lent.data()), lent.size(), false, "lent").value();
      std::atomic<int> written = 0;
      std::vector<std::thread> writers;
      for (int i = 0; i < 3; ++i) {
        const auto remote = user->OpenSegment(owner->endpoint(), std::string("lent"), Soon());
        writers.emplace_back([&, remote = remote.value()] {
          Status status;
          for (; status.ok(); ++written) {
            status = user->Execute(Op::kWrite, remote, {&all, 1}, {Soon()});
          }
          EXPECT(status.code() == Code::kNotFound);
        });
      }
      while (written < 6) std::this_thread::yield();
      std::thread second([&] { EXPECT(owner->CloseSegment(*segment, Soon())); });
      EXPECT(owner->CloseSegment(*segment, Soon()));
      std::memset(lent.data(), 0, lent.size());
      second.join();
      for (auto& writer : writers) writer.join();
      EXPECT(lent == std::vector<uint8_t>(4 << 20));
    }
  }
}

TEST(LentMemoryThatIsHeldStaysInUse) {
  const auto owner = NewEngine(SameHost::kShm);
  const auto user = NewEngine(SameHost::kShm);
  std::vector<uint8_t> lent(100);
  const auto segment = owner->Lend(reinterpret_cast<uint64_t>(lent.data()), 100).value();
  const Segment::Use use(segment);
  EXPECT(!owner->CloseSegment(*segment, Deadline::After(0.01)));
  EXPECT(user->OpenSegment(owner->endpoint(), segment->id(), Soon()).status().code() ==
         Code::kNotFound);
}

TEST(StreamedCopiesAreCopiesWhereverTheyStart) {
  std::vector<uint8_t> source(1000), target;
  for (size_t i = 0; i < source.size(); ++i) source[i] = static_cast<uint8_t>(i * 7);
  for (const size_t from : {0, 1, 63}) {
    for (const size_t to : {0, 1, 17, 63, 64}) {
      for (const size_t size : {0, 1, 63, 64, 65, 500}) {
        target.assign(700, 0);
        StreamCopy(target.data() + to, source.data() + from, size);
        StreamFence();
        std::vector<uint8_t> expected(700, 0);
        std::memcpy(expected.data() + to, source.data() + from, size);
        EXPECT(target == expected);
      }
    }
  }
}

}  // namespace
}  // namespace mooncake

RUN_TESTS()
