// What one caller may take of the master: messages, turns, work.
#include <time.h>

#include <algorithm>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/deadline.h"
#include "base/socket.h"
#include "store/dispatch.h"
#include "store/group_table.h"
#include "store/master_client.h"
#include "store/master_server.h"
#include "tests/test.h"

namespace mooncake::store {
namespace {

constexpr uint64_t kEpoch = 7;
constexpr SessionId kSession = 9;

Deadline Soon() { return Deadline::After(20); }

std::vector<std::string> KeysOf(size_t count, const std::string& prefix = "key") {
  std::vector<std::string> keys;
  for (size_t number = 0; number < count; ++number) keys.push_back(prefix + std::to_string(number));
  return keys;
}

// Each of a domain of its own, unless there are to be only so many.
NodeRegister ANode(uint64_t number, uint64_t capacity_bytes, uint64_t domains = ~0ull) {
  const std::string name = "n" + std::to_string(number);
  const std::string domain = std::to_string(number % domains);
  return {number, kEpoch, name + ":1", name, name, domain, capacity_bytes};
}

// Of 8 bytes, without checksums.
PutStart StartOf(SessionId session, std::span<const std::string> keys) {
  PutStart start{session, {PutOptions{.has_checksums = false}}, {}};
  for (const std::string& key : keys) {
    start.items.push_back({.put_id = start.items.size() + 1, .key = key, .size_bytes = 8});
  }
  return start;
}

PutEnd EndOf(const PutStart& start, const PutStartReply& reply) {
  PutEnd end{start.session, {}, {}};
  for (size_t at = 0; at < reply.items.size(); ++at) {
    const PutStart::Item& item = start.items[at];
    const uint64_t checksums =
        start.options[0].has_checksums ? ChunkCount(item.size_bytes, item.part_bytes) : 0;
    end.items.push_back({item.put_id, item.key, reply.items[at].generation, {}, {}, {}, checksums});
    end.checksums.resize(end.checksums.size() + checksums);
  }
  return end;
}

// A master of some nodes, and one client.
struct Site {
  explicit Site(uint64_t nodes, uint64_t capacity_bytes = 64 << 20, uint64_t domains = ~0ull)
      : core({kEpoch, 60, 60}) {
    for (uint64_t number = 1; number <= nodes; ++number) {
      EXPECT(core.Step(ANode(number, capacity_bytes, domains), 0).is_known);
    }
    EXPECT(core.Step(Hello{kSession, 0, 1, ""}, 0).ok());
  }

  // Asks until nothing waits any more.
  PutStartReply Start(const PutStart& start) {
    for (;;) {
      PutStartReply reply = core.Step(start, 0);
      const auto waits = [](const auto& item) { return item.outcome == PutOutcome::kMakingRoom; };
      if (std::ranges::none_of(reply.items, waits)) return reply;
    }
  }
  void Put(const PutStart& start) {
    const PutStartReply reply = Start(start);
    for (const auto& item : reply.items) EXPECT(item.outcome == PutOutcome::kStarted);
    for (const auto outcome : core.Step(EndOf(start, reply), 0).outcomes) {
      EXPECT(outcome == EndOutcome::kDone);
    }
  }
  void PutOn(const std::string& node, std::span<const std::string> keys) {
    for (; !keys.empty(); keys = keys.subspan(std::min(keys.size(), kMaxBatch))) {
      PutStart start = StartOf(kSession, keys.first(std::min(keys.size(), kMaxBatch)));
      start.options[0].preferred = {node};
      Put(start);
    }
  }
  uint64_t Create(const TaskCreate& event) {
    const TaskCreated created = core.Step(event, 0);
    EXPECT(created.task != 0);
    return created.task;
  }
  void Settle() {
    while (core.has_background()) core.RunSlice(0);
  }

  MasterCore core;
};

double ProcessorSeconds() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// The least processor time of several rounds, each with what `make` gives.
template <typename Make, typename Do>
double CostOf(Make make, Do work) {
  double least_s = 1e9;
  for (int round = 0; round < 3; ++round) {
    auto made = make();
    const double began_s = ProcessorSeconds();
    work(made);
    least_s = std::min(least_s, ProcessorSeconds() - began_s);
  }
  return least_s;
}

// --- turns

template <typename M>
void AppendFrame(MessageType type, const M& message, std::vector<uint8_t>& out) {
  const size_t begin = BeginFrame(out);
  Encode(message, out);
  EndFrame(out, begin, static_cast<uint8_t>(type), /*request_id=*/1);
}

// Who asks after it is answered while it still waits for most of its answers.
TEST(ConnectionThatHasSentMuchIsAnsweredInTurns) {
  const auto server = MasterServer::Start("127.0.0.1:0", {kEpoch, 60, 60}).value();
  MasterClient client(server->endpoint());
  const auto ask = [&]<typename R>(R&&, MessageType type, const auto& question) {
    return client.Call<R>(type, question, Soon()).value();
  };
  EXPECT(ask(NodeReply{}, MessageType::kNodeRegister, ANode(1, 1 << 20)).is_known);
  const SessionId session = ask(HelloReply{}, MessageType::kHello, Hello{0, 0, 1, ""}).session;
  const auto keys = KeysOf(kMaxBatch);
  const PutStart start = StartOf(session, keys);
  const PutEnd end = EndOf(start, ask(PutStartReply{}, MessageType::kPutStart, start));
  EXPECT(ask(PutEndReply{}, MessageType::kPutEnd, end).outcomes.back() == EndOutcome::kDone);

  constexpr uint64_t kQuestions = 60;  // which arrive together
  std::vector<uint8_t> questions;
  for (uint64_t number = 0; number < kQuestions; ++number) {
    AppendFrame(MessageType::kList, List{0, kMaxBatch, ""}, questions);
    AppendFrame(MessageType::kLookup, Lookup{session, false, false, {}, {"none"}}, questions);
  }
  const auto answered = [&] { return ask(Stats{}, MessageType::kStats, One{}).counters.misses; };
  const auto is_shared = [&] {
    const Fd greedy = ConnectTcp(ParseAddress(server->endpoint()).value(), Soon()).value();
    const uint64_t before = answered();
    MC_CHECK(SendAll(greedy, questions.data(), questions.size(), Soon()).ok(), "send");
    const uint64_t meanwhile = answered() - before;
    while (answered() < before + kQuestions) std::this_thread::yield();
    return 0 < meanwhile && meanwhile < kQuestions;
  };
  bool is_ever_shared = false;  // not if this thread was kept from asking for long
  for (int tries = 0; tries < 100 && !is_ever_shared; ++tries) is_ever_shared = is_shared();
  EXPECT(is_ever_shared);
}

// --- messages

template <typename M>
Code Say(MessageType type, const M& message) {
  MasterCore core({kEpoch, 60, 60});
  std::vector<uint8_t> body, answer;
  Encode(message, body);
  DispatchContext context;
  return Dispatch(core, static_cast<uint8_t>(type), body, context, answer).code();
}

TEST(ListsOfMoreThan1024AreRefusedWhereverTheyAre) {
  const auto is_bounded = [](MessageType type, auto with) {
    return Say(type, with(kMaxBatch)) == Code::kOk &&
           Say(type, with(kMaxBatch + 1)) == Code::kInvalidArgument;
  };
  using Ids = std::vector<uint64_t>;
  using Views = std::vector<std::string_view>;
  const auto put_end = [&](PutEnd::Item item) { return PutEnd{kSession, {std::move(item)}, {}}; };
  const auto put_abort = [&](PutAbort::Item item) { return PutAbort{kSession, {std::move(item)}}; };
  EXPECT(is_bounded(MessageType::kHeartbeat, [](size_t n) { return Heartbeat{1, Ids(n), {}}; }));
  EXPECT(is_bounded(MessageType::kHeartbeat, [](size_t n) { return Heartbeat{1, {}, Ids(n)}; }));
  EXPECT(is_bounded(MessageType::kPutStart,
                    [](size_t n) { return PutStart{1, {{}}, std::vector<PutStart::Item>(n)}; }));
  EXPECT(is_bounded(MessageType::kPutStart,
                    [](size_t n) { return PutStart{1, std::vector<PutOptions>(n), {}}; }));
  EXPECT(is_bounded(MessageType::kPutStart, [](size_t n) {
    return PutStart{1, {PutOptions{.preferred = std::vector<std::string>(n)}}, {}};
  }));
  EXPECT(is_bounded(MessageType::kPutEnd, [&](size_t n) {
    return put_end({.lost = Ids(n), .dirty = {}, .failed = {}});
  }));
  EXPECT(is_bounded(MessageType::kPutEnd, [&](size_t n) {
    return put_end({.lost = {}, .dirty = Ids(n), .failed = {}});
  }));
  EXPECT(is_bounded(MessageType::kPutEnd, [&](size_t n) {
    return put_end({.lost = {}, .dirty = {}, .failed = Ids(n)});
  }));
  EXPECT(is_bounded(MessageType::kPutAbort, [&](size_t n) { return put_abort({1, Ids(n), {}}); }));
  EXPECT(is_bounded(MessageType::kPutAbort, [&](size_t n) { return put_abort({1, {}, Ids(n)}); }));
  EXPECT(is_bounded(MessageType::kLookup,
                    [](size_t n) { return Lookup{1, false, false, Ids(n), {}}; }));
  EXPECT(is_bounded(MessageType::kLookup,
                    [](size_t n) { return Lookup{1, false, false, {}, Views(n)}; }));
  EXPECT(is_bounded(MessageType::kRelease, [](size_t n) { return Release{1, Ids(n)}; }));
  EXPECT(is_bounded(MessageType::kExists, [](size_t n) { return Keys{Views(n)}; }));
  EXPECT(is_bounded(MessageType::kDescribe, [](size_t n) { return Describe{Views(n)}; }));
  EXPECT(
      is_bounded(MessageType::kSetPin, [](size_t n) { return SetPin{Pin::kHard, 0, Views(n)}; }));
  EXPECT(is_bounded(MessageType::kTaskQuery, [](size_t n) { return TaskQuery{Ids(n)}; }));
  EXPECT(is_bounded(MessageType::kTaskCreate, [](size_t n) {
    return TaskCreate{TaskKind::kCopy, "", "", std::vector<std::string>(n)};
  }));
  EXPECT(is_bounded(MessageType::kNodeHeartbeat,
                    [](size_t n) { return NodeHeartbeat{1, Ids(n), {}}; }));
  EXPECT(is_bounded(MessageType::kNodeHeartbeat,
                    [](size_t n) { return NodeHeartbeat{1, {}, std::vector<CopyResult>(n)}; }));
  EXPECT(is_bounded(MessageType::kNodeHeartbeat,
                    [](size_t n) { return NodeHeartbeat{1, {}, {CopyResult{1, false, Ids(n)}}}; }));
}

TEST(ChecksumsAreAsManyAsTheirBytes) {
  EXPECT(Say(MessageType::kPutEnd, PutEnd{1, {}, std::vector<uint32_t>(1 << 20)}) == Code::kOk);
}

// Of 8 MiB together with their checksums, a little less without them: eight fill 64 MiB.
TEST(ChecksumsCountInWhatANodeIsOrderedToFetch) {
  constexpr uint64_t kPart = 4096, kBytes = (8 << 20) - kPart;
  Site site(2, 1 << 30);
  const auto keys = KeysOf(10);
  for (const std::string& key : keys) {
    PutStart start{kSession, {PutOptions{.preferred = {"n1"}}}, {}};
    start.items.push_back({.put_id = 1, .key = key, .size_bytes = kBytes, .part_bytes = kPart});
    site.Put(start);
    site.Create({TaskKind::kCopy, key, "", {"n2"}});
  }
  site.Settle();
  EXPECT(site.core.Report().copy_orders == 10);
  EXPECT(site.core.Step(NodeHeartbeat{2, {}, {}}, 0).orders.size() == 8);
}

// --- work

TEST(MemberOfALargeGroupLeavesAsSoonAsOneOfASmall) {
  const auto cost_of = [](uint32_t members) {
    const auto make = [members] {
      auto groups = std::make_unique<GroupTable>();
      for (uint32_t index = 0; index < members; ++index) EXPECT(groups->Join("g", 0, index) == 0);
      return groups;
    };
    return CostOf(make, [](auto& groups) {
      for (uint32_t index = 0; index < 1000; ++index) groups->Leave(0, index);
    });
  };
  EXPECT(cost_of(64'000) < 12 * cost_of(2'000));
}

TEST(GroupsKnowTheirMembersInWhateverOrderTheyLeave) {
  GroupTable groups;
  for (uint32_t index = 0; index < 100; ++index) groups.Join(index % 2 == 0 ? "a" : "b", 0, index);
  for (uint32_t index = 0; index < 100; index += 3) groups.Leave(index % 2, index);
  for (const uint32_t group : {0u, 1u}) {
    std::vector<uint32_t> left = groups[group].members, wanted;
    std::ranges::sort(left);
    for (uint32_t index = group; index < 100; index += 2) {
      if (index % 3 != 0) wanted.push_back(index);
    }
    EXPECT(left == wanted);
    for (const uint32_t index : left) groups.Leave(group, index);
  }
  EXPECT(groups.count() == 0);
}

// 64 parents are replaced by one message, each with so many children.
TEST(ChildrenThatFollowNewVersionsAreBoundedForAWholeMessage) {
  const auto parents = KeysOf(64, "parent");
  const auto cost_of = [&](size_t children) {
    const auto make = [&] {
      auto site = std::make_unique<Site>(1, 1 << 30);
      site->PutOn("n1", parents);
      for (const std::string& parent : parents) {
        const auto keys = KeysOf(children, parent + "/");
        PutStart start = StartOf(kSession, keys);
        for (auto& item : start.items) item.parent = parent;
        site->Put(start);
      }
      return site;
    };
    return CostOf(make, [&](auto& site) {
      PutStart start = StartOf(kSession, parents);
      start.options[0].is_upsert = true;
      site->Put(start);
    });
  };
  EXPECT(cost_of(1000) < 10 * cost_of(8));
}

// The first of a chain lies where room is needed, the others elsewhere.
TEST(OfAChainTheFirst4097GoTogetherAndWhatIsBehindStays) {
  Site site(1, 1 << 20);
  EXPECT(site.core.Step(ANode(2, 5'000 * 128), 0).is_known);
  const auto keys = KeysOf(5'000);
  for (size_t at = 0; at < keys.size(); ++at) {
    PutStart start = StartOf(kSession, std::span(keys).subspan(at, 1));
    start.options[0].preferred = {at == 0 ? "n1" : "n2"};
    if (at > 0) start.items[0].parent = keys[at - 1];
    site.Put(start);
  }
  PutStart large = StartOf(kSession, {});
  large.items.push_back({.put_id = 1, .key = "large", .size_bytes = (1 << 20) - kHeaderBytes});
  PutStartReply reply;
  do {
    reply = site.core.Step(large, 0);
  } while (reply.items[0].outcome == PutOutcome::kMakingRoom);
  EXPECT(reply.items[0].outcome == PutOutcome::kStarted);
  EXPECT(site.core.Report().counters.evictions == 4097);
  EXPECT(site.core.Exists({{keys[4096], keys[4097]}}) == std::vector<bool>({false, true}));
  site.core.Check();
}

TEST(StrictPutsAreRefusedAsSoonOfManyNodesAsOfFew) {
  const auto keys = KeysOf(kMaxBatch);
  const auto cost_of = [&](uint64_t nodes) {
    return CostOf([&] { return std::make_unique<Site>(nodes, 1 << 20, /*domains=*/15); },
                  [&](auto& site) {
                    PutStart start = StartOf(kSession, keys);
                    start.options[0].is_strict = true;
                    start.options[0].replicas = 16;
                    const PutStartReply reply = site->core.Step(start, 0);
                    EXPECT(reply.items.back().outcome == PutOutcome::kTooFewNodes);
                    EXPECT(reply.items.back().copies == 15);
                  });
  };
  EXPECT(cost_of(1500) < 10 * cost_of(15));
}

// Nodes that have no room, each full of 64 small objects.
std::unique_ptr<Site> Full(uint64_t nodes) {
  constexpr uint64_t kObjects = 64;
  auto site = std::make_unique<Site>(nodes, kObjects * 128);
  const auto keys = KeysOf(kObjects * nodes, "old");
  for (uint64_t at = 0; at < keys.size(); at += kObjects) {
    site->Put(StartOf(kSession, std::span(keys).subspan(at, kObjects)));
  }
  return site;
}

TEST(OnePutIntoAFullPoolTakesTimeInProportionToItsNodes) {
  const auto keys = KeysOf(1);
  const auto cost_of = [&](uint64_t nodes) {
    return CostOf([&] { return Full(nodes); },
                  [&](auto& site) { site->Put(StartOf(kSession, keys)); });
  };
  EXPECT(cost_of(1600) < 60 * cost_of(100));
}

TEST(ManyPutsIntoAFullPoolAreAnsweredAsSoonOfManyNodesAsOfFew) {
  const auto keys = KeysOf(kMaxBatch);
  const auto cost_of = [&](uint64_t nodes) {
    return CostOf([&] { return Full(nodes); },
                  [&](auto& site) {
                    const PutStartReply reply = site->core.Step(StartOf(kSession, keys), 0);
                    EXPECT(reply.items.front().outcome == PutOutcome::kStarted);
                    EXPECT(nodes < 100 || reply.items.back().outcome == PutOutcome::kMakingRoom);
                  });
  };
  EXPECT(cost_of(320) < 6 * cost_of(20));
}

TEST(TickCostsInProportionToTheNodesThatAreSilent) {
  constexpr double kTick_s = MasterCore::kStall_s / 2;
  constexpr double kSuspected_s = 61;
  const auto cost_of = [](uint64_t nodes) {
    const auto make = [nodes] {
      auto site = std::make_unique<Site>(nodes);
      for (double now_s = 0; now_s < kSuspected_s; now_s += kTick_s) site->core.Tick(now_s);
      return site;
    };
    return CostOf(make, [](auto& site) {
      for (int tick = 0; tick < 10; ++tick) site->core.Tick(kSuspected_s);
    });
  };
  EXPECT(cost_of(1600) < 60 * cost_of(100));
}

// A site whose first node drains: as many copies are under way as may be.
std::unique_ptr<Site> Draining(uint64_t nodes, uint64_t& task) {
  constexpr uint64_t kJobsANode = 32;
  auto site = std::make_unique<Site>(nodes);
  const auto keys = KeysOf(kJobsANode * nodes);
  site->PutOn("n1", keys);
  task = site->Create({TaskKind::kDrain, "", "n1", {}});
  site->Settle();
  EXPECT(site->core.Report().copy_orders == kJobsANode * nodes);
  return site;
}

TEST(CancellingADrainTakesTimeInProportionToItsCopies) {
  const auto cost_of = [](uint64_t nodes) {
    uint64_t task = 0;
    return CostOf([&] { return Draining(nodes, task); },
                  [&](auto& site) {
                    const auto tasks = site->core.Step(TaskQuery{{task}, true}, 0).value();
                    EXPECT(tasks.tasks[0].state == TaskState::kCancelled);
                    EXPECT(site->core.Report().copy_orders == 0);
                  });
  };
  EXPECT(cost_of(200) < 10 * cost_of(50));
}

TEST(CancellingATaskDoesNotLookAtTheCopiesOfOthers) {
  const auto cost_of = [](uint64_t nodes) {
    std::vector<uint64_t> tasks;
    const auto make = [&] {
      uint64_t drain = 0;
      auto site = Draining(nodes, drain);
      tasks.clear();
      for (int task = 0; task < 900; ++task) {
        tasks.push_back(site->Create({TaskKind::kCopy, "key0", "", {}}));
      }
      return site;
    };
    return CostOf(make, [&](auto& site) {
      EXPECT(site->core.Step(TaskQuery{tasks, true}, 0).value().tasks.size() == tasks.size());
    });
  };
  EXPECT(cost_of(160) < 5 * cost_of(10));
}

}  // namespace
}  // namespace mooncake::store

RUN_TESTS()
