// What one caller may take of the master: messages, turns, work.
#include <chrono>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/deadline.h"
#include "base/socket.h"
#include "store/dispatch.h"
#include "store/master_client.h"
#include "store/master_server.h"
#include "tests/test.h"

namespace mooncake::store {
namespace {

constexpr uint64_t kEpoch = 7;
constexpr SessionId kSession = 9;

Deadline Soon() { return Deadline::After(20); }

NodeRegister ANode(uint64_t number, uint64_t capacity_bytes) {
  const std::string name = "n" + std::to_string(number);
  return {number, kEpoch, name + ":1", name, name, name, capacity_bytes};
}

std::vector<std::string> KeysOf(size_t count) {
  std::vector<std::string> keys;
  for (size_t number = 0; number < count; ++number) keys.push_back("key" + std::to_string(number));
  return keys;
}

PutStart StartOf(SessionId session, const std::vector<std::string>& keys) {
  PutStart start{session, {PutOptions{.has_checksums = false}}, {}};
  for (const std::string& key : keys) {
    start.items.push_back({.put_id = start.items.size() + 1, .key = key, .size_bytes = 8});
  }
  return start;
}

PutEnd EndOf(const PutStart& start, const PutStartReply& reply) {
  PutEnd end{start.session, {}, {}};
  for (size_t at = 0; at < reply.items.size(); ++at) {
    end.items.push_back(
        {start.items[at].put_id, start.items[at].key, reply.items[at].generation, {}, {}, {}, 0});
  }
  return end;
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

}  // namespace
}  // namespace mooncake::store

RUN_TESTS()
