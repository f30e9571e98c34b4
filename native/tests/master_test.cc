// The master against odd callers, and what a client makes of a master or a node that went away.
#include <chrono>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/random.h"
#include "base/socket.h"
#include "store/client.h"
#include "store/dispatch.h"
#include "store/master_server.h"
#include "store/node.h"
#include "store/registration.h"
#include "tests/test.h"

namespace mooncake::store {
namespace {

constexpr uint64_t kEpoch = 7;

Deadline Soon() { return Deadline::After(20); }

void Pause() { std::this_thread::sleep_for(std::chrono::milliseconds(5)); }

template <typename Predicate>
void Await(Predicate is_so) {
  const Deadline deadline = Soon();
  while (!is_so()) {
    MC_CHECK(!deadline.passed(), "it never came");
    Pause();
  }
}

NodeRegister SomeNode() { return {1, kEpoch, "127.0.0.1:1", "host", "", "", 1 << 20}; }

TEST(NobodyWithoutANameIsTakenIn) {
  MasterCore core({kEpoch, 3, 5});
  EXPECT(core.Step(Hello{1, 0, 0, ""}, 0).value().is_fenced);
  NodeRegister node = SomeNode();
  node.node = 0;
  EXPECT(!core.Step(node, 0).is_known);
  node = SomeNode();
  node.endpoint.assign(kMaxNameBytes + 1, 'x');
  EXPECT(!core.Step(node, 0).is_known);
  EXPECT(core.Step(SomeNode(), 0).is_known);
  EXPECT(core.Report().clients == 0);
}

TEST(LookupWithAnAnswerTooLargeIsRefusedBeforeItIsMade) {
  constexpr uint64_t kParts = 15'000, kPart = 4'096;  // each with a checksum
  MasterCore core({kEpoch, 3, 5});
  NodeRegister node = SomeNode();
  node.capacity_bytes = 64 << 20;
  core.Step(node, 0);
  EXPECT(core.Step(Hello{1, 0, 9, ""}, 0).ok());
  const PutStart::Item put{
      .put_id = 1, .key = "key", .size_bytes = kParts * kPart, .part_bytes = kPart};
  const auto started = core.Step(PutStart{1, {{}}, {put}}, 0);
  const PutEnd::Item end{1, "key", started.items[0].generation, {}, {}, {}, kParts};
  EXPECT(core.Step(PutEnd{1, {end}, std::vector<uint32_t>(kParts)}, 0).outcomes[0] ==
         EndOutcome::kDone);

  const auto ask = [&](size_t times) {
    std::vector<uint8_t> body, answer;
    Encode(Lookup{1, false, false, {}, std::vector<std::string_view>(times, "key")}, body);
    DispatchContext context;
    EXPECT(Dispatch(core, static_cast<uint8_t>(MessageType::kLookup), body, context, answer).ok());
    const auto reply = Decode<LookupReply>(answer);
    return reply.ok() && reply.value().is_known && !reply.value().is_too_large;
  };
  EXPECT(!ask(kMaxBatch));
  EXPECT(core.Report().leases == 0);
  EXPECT(ask(10));
  EXPECT(core.Report().leases == 1);
  core.Check();
}

TEST(WholeBatchWhoseAbortOvertookItsStartTakesNoSpace) {
  MasterCore core({kEpoch, 3, 5});
  core.Step(SomeNode(), 0);
  EXPECT(core.Step(Hello{1, 0, 9, ""}, 0).ok());
  PutAbort abort{1, {}};
  PutStart start{1, {{}}, {}};
  for (uint64_t put = 1; put <= kMaxBatch; ++put) {
    abort.items.push_back({put, {}});
    start.items.push_back({.put_id = put, .key = "key", .size_bytes = 8});
  }
  core.Step(abort, 0);
  core.Step(start, 0);
  EXPECT(core.Report().writing == 0);
  EXPECT(core.Report().space.used == 0);
}

TEST(ConnectionThatAsksNothingIsClosed) {
  const auto server = MasterServer::Start("127.0.0.1:0", {kEpoch, 3, 5}, 0.2).value();
  const Address address = ParseAddress(server->endpoint()).value();
  const Fd asking = ConnectTcp(address, Soon()).value();
  const auto question =
      EncodeFrameHeader({static_cast<uint8_t>(MessageType::kStats), 2, /*request_id=*/1});
  const uint8_t one[2] = {0x91, 0};
  const auto ask = [&] {
    FrameHeaderBytes header;
    if (!SendAll(asking, question.data(), question.size(), Soon()).ok()) return false;
    if (!SendAll(asking, one, sizeof one, Soon()).ok()) return false;
    if (!RecvAll(asking, header.data(), header.size(), Soon()).ok()) return false;
    std::vector<uint8_t> body(DecodeFrameHeader(header).value().body_bytes);
    return RecvAll(asking, body.data(), body.size(), Soon()).ok();
  };
  EXPECT(ask());
  const Fd silent = ConnectTcp(address, Soon()).value();
  uint8_t byte;
  EXPECT(RecvAll(silent, &byte, 1, Soon()).code() == Code::kPeerUnreachable);
  EXPECT(ask());
}

// A master that starts anew counts leases from 1 again.
TEST(ReaderOfAnEarlierMasterDoesNotEndTheLeaseOfALaterOne) {
  constexpr double kLease_s = 1;
  auto server = MasterServer::Start("127.0.0.1:0", {kEpoch, 2, kLease_s}).value();
  const std::string endpoint = server->endpoint();
  const auto node = Node::Start(Engine::Create({}).value(), {endpoint, 1 << 20}).value();
  Client client(Engine::Create({}).value(), {endpoint, 1, 5});
  const uint64_t value = 5;
  const Registration registered(client.engine(), &value, sizeof value);
  const auto open = [&] {
    const Client::PutItem item{"key", sizeof value};
    const Range range{reinterpret_cast<uint64_t>(&value), sizeof value};
    const std::span<const Range> memory(&range, 1);
    Await([&] {
      const auto put = client.Put({&item, 1}, {&memory, 1}, {});
      return put.items[0].status.ok();
    });
    return client.Open({"key"}, true).value();
  };
  const auto early = open();
  server = nullptr;
  server = MasterServer::Start(endpoint, {kEpoch + 1, 2, kLease_s}).value();
  Await([&] { return node->epoch() == kEpoch + 1; });
  const auto late = open();
  early->Close();
  const Deadline end = Deadline::After(3 * kLease_s);
  while (late->Validity().ok() && !end.passed()) Pause();
  EXPECT(late->Validity().ok());
}

// Its room is made object by object, which takes many times longer than it waits.
TEST(PutThatGaveUpWhileRoomWasMadeLeavesItsKeyAlone) {
  MasterOptions options{kEpoch, 3, 5};
  options.step_evictions = 1;
  const auto server = MasterServer::Start("127.0.0.1:0", options).value();
  const auto node = Node::Start(Engine::Create({}).value(), {server->endpoint(), 5 << 18}).value();
  const auto engine = Engine::Create({}).value();
  const std::vector<uint8_t> memory(1 << 20);
  const Registration registered(*engine, memory.data(), memory.size());
  const auto put = [&](Client& client, std::span<const Client::PutItem> items) {
    const Range range{reinterpret_cast<uint64_t>(memory.data()), items[0].size_bytes};
    const std::vector<std::span<const Range>> values(items.size(), {&range, 1});
    return client.Put(items, values, {}).items.back().status;
  };
  Client patient(engine, {server->endpoint(), 1, 30});
  std::vector<std::string> keys;
  for (int number = 0; number < 9'500; ++number) keys.push_back(std::to_string(number));
  std::vector<Client::PutItem> small;
  for (const std::string& key : keys) small.push_back({key, 1});
  Await([&] { return put(patient, {small.data(), 1}).ok(); });
  EXPECT(put(patient, small).ok());

  Client hasty(engine, {server->endpoint(), 1, 0.05});
  const Client::PutItem large{"large", memory.size()};
  Await([&] { return hasty.Exists({{"large"}}).ok(); });
  EXPECT(put(hasty, {&large, 1}).code() == Code::kUnavailable);
  EXPECT(patient.Report().value().counters.making_room > 0);
  Await([&] { return patient.Report().value().writing == 0; });
  EXPECT(put(patient, {&large, 1}).ok());
  EXPECT(patient.Exists({{"large"}}).value()[0]);
}

TEST(PinWhoseAnswerWasLostEndsAndThoseThatAreKnownDoNot) {
  const auto server = MasterServer::Start("127.0.0.1:0", {kEpoch, 0.4, 1}).value();
  const auto node = Node::Start(Engine::Create({}).value(), {server->endpoint(), 1 << 20}).value();
  Client client(Engine::Create({}).value(), {server->endpoint(), 1, 5});
  const uint64_t value = 5;
  const Registration registered(client.engine(), &value, sizeof value);
  const Client::PutItem item{"key", sizeof value};
  const Range range{reinterpret_cast<uint64_t>(&value), sizeof value};
  const std::span<const Range> memory(&range, 1);
  Await([&] {
    const auto put = client.Put({&item, 1}, {&memory, 1}, {});
    return put.items[0].status.ok();
  });
  Session session(Engine::Create({}).value(), server->endpoint(), 5);
  const SessionId id = session.Current().value().id;
  const auto pin = [&] {
    const Lookup lookup{id, false, /*is_pin=*/true, {}, {"key"}};
    return session.master().Call<LookupReply>(MessageType::kLookup, lookup, Soon()).value().lease;
  };
  const auto pins = [&] {
    return session.master().Call<Stats>(MessageType::kStats, One{}, Soon()).value().leases;
  };
  const auto known = session.Hold(id, pin(), 1e9, /*is_pin=*/true);
  {
    const Session::PinQuestion question(session);  // while it is asked, nothing is known to be lost
    EXPECT(pin() != 0);
    const Deadline some_beats = Deadline::After(0.5);
    while (!some_beats.passed()) Pause();
    EXPECT(pins() == 2);
  }
  Await([&] { return pins() == 1; });
  const Deadline some_beats = Deadline::After(0.5);
  while (!some_beats.passed()) Pause();
  EXPECT(pins() == 1);
}

TEST(CallersThatWaitForOneDeadNodeDoNotWaitInTurn) {
  const Fd deaf = ListenTcp({"127.0.0.1", 0}).value();  // the kernel connects, nobody answers
  const NodeAddress node{1, LocalAddress(deaf).value().ToString()};
  const auto engine = Engine::Create({}).value();
  SegmentCache segments(engine);
  const double began_s = MonotonicSeconds();
  std::vector<std::thread> callers;
  for (int caller = 0; caller < 5; ++caller) {
    callers.emplace_back([&] {
      const auto opened = segments.Open(node, engine->peer_id(), Soon());
      MC_CHECK(!opened.ok(), "a deaf node was opened");
    });
  }
  for (auto& caller : callers) caller.join();
  EXPECT(MonotonicSeconds() - began_s < 6);  // one gives up after 2 s; in turn it would be 10
}

}  // namespace
}  // namespace mooncake::store

RUN_TESTS()
