// Questions to the master over real sockets: many at once, in pieces, over old connections, and
// none.
#include <sys/resource.h>

#include <chrono>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "base/check.h"
#include "base/socket.h"
#include "store/client.h"
#include "store/door.h"
#include "store/master_client.h"
#include "store/master_server.h"
#include "tests/test.h"

namespace mooncake::store {
namespace {

using Frames = std::vector<uint8_t>;

constexpr uint64_t kEpoch = 7;

Deadline Soon() { return Deadline::After(20); }

std::unique_ptr<MasterServer> StartMaster(const std::string& listen = "127.0.0.1:0",
                                          double client_ttl_s = 60) {
  return MasterServer::Start(listen, {kEpoch, client_ttl_s, client_ttl_s}).value();
}

template <typename Request>
void Append(Frames& out, MessageType type, uint64_t request_id, const Request& request) {
  const size_t begin = BeginFrame(out);
  Encode(request, out);
  EndFrame(out, begin, static_cast<uint8_t>(type), request_id);
}

// Reads one frame; gives its request id.
uint64_t Receive(const Fd& socket, Frames& body) {
  FrameHeaderBytes bytes;
  MC_CHECK(RecvAll(socket, bytes.data(), bytes.size(), Soon()).ok(), "no answer");
  const FrameHeader header = DecodeFrameHeader(bytes).value();
  body.resize(header.body_bytes);
  MC_CHECK(RecvAll(socket, body.data(), body.size(), Soon()).ok(), "half an answer");
  return header.request_id;
}

Keys Unknown(size_t count) {
  Keys keys;
  keys.keys.assign(count, "nobody knows this key");
  return keys;
}

TEST(ManyQuestionsInFlightAreAnsweredInTheirOrder) {
  const auto server = StartMaster();
  MasterClient client(server->endpoint());
  std::vector<Keys> questions;
  for (size_t count = 0; count < 300; ++count) questions.push_back(Unknown(count));
  for (int round = 0; round < 2; ++round) {
    const auto replies = client.CallAll<Flags>(MessageType::kExists, questions, Soon());
    EXPECT(replies.ok() && replies.value().size() == questions.size());
    for (size_t count = 0; count < 300; ++count) {
      EXPECT(replies.value()[count].flags.size() == count);
    }
  }
  EXPECT(client.CallAll<Flags>(MessageType::kExists, std::vector<Keys>(), Soon()).value().empty());
  EXPECT(client.Call<Stats>(MessageType::kStats, One{}, Soon()).ok());
}

// More than the sockets and the master's output hold in each direction.
TEST(QuestionsThatFillTheWayDoNotStopTheirAnswers) {
  constexpr size_t kParts = 15'000, kPart = 4'096;  // each with a checksum
  const auto server = StartMaster();
  MasterClient client(server->endpoint());
  NodeRegister node;
  node.node = 1;
  node.epoch = kEpoch;
  node.endpoint = "127.0.0.1:1";
  node.host_id = "host";
  node.capacity_bytes = 64 << 20;
  EXPECT(client.Call<NodeReply>(MessageType::kNodeRegister, node, Soon()).value().is_known);
  Hello hello;
  hello.peer_id = 9;
  const auto session = client.Call<HelloReply>(MessageType::kHello, hello, Soon()).value().session;
  PutStart start;
  start.session = session;
  start.options.emplace_back();
  start.items.emplace_back();
  start.items[0].put_id = 1;
  start.items[0].key = "key";
  start.items[0].size_bytes = kParts * kPart;
  start.items[0].part_bytes = kPart;
  const auto started = client.Call<PutStartReply>(MessageType::kPutStart, start, Soon()).value();
  PutEnd end;
  end.session = session;
  end.items.emplace_back();
  end.items[0].put_id = 1;
  end.items[0].key = "key";
  end.items[0].generation = started.items[0].generation;
  end.items[0].checksums = kParts;
  end.checksums.resize(kParts);
  const auto ended = client.Call<PutEndReply>(MessageType::kPutEnd, end, Soon()).value();
  EXPECT(ended.outcomes == std::vector<EndOutcome>{EndOutcome::kDone});

  const std::string long_key(60'000, 'k');  // a miss
  Lookup lookup;
  lookup.session = session;
  lookup.keys = {"key", "key", "key", "key", long_key, long_key};
  const std::vector<Lookup> questions(200, lookup);
  const auto replies = client.CallAll<LookupReply>(MessageType::kLookup, questions, Soon());
  EXPECT(replies.ok());
  for (const LookupReply& reply : replies.value()) {
    EXPECT(reply.items[0].found && reply.checksums.size() == 4 * kParts);
    EXPECT(!reply.items[5].found);
  }
}

TEST(QuestionThatFitsNoFrameIsRefusedAndTheNextIsAnswered) {
  const auto server = StartMaster();
  MasterClient client(server->endpoint());
  const std::string long_key(size_t{64} << 10, 'k');
  Keys large;
  large.keys.assign(1100, long_key);
  const auto refused = client.Call<Flags>(MessageType::kExists, large, Soon());
  EXPECT(refused.status().code() == Code::kInvalidArgument);
  EXPECT(client.Call<Flags>(MessageType::kExists, Unknown(1), Soon()).ok());
}

TEST(QuestionsThatComeAByteAtATimeAreAnswered) {
  const auto server = StartMaster();
  const Fd socket = ConnectTcp(ParseAddress(server->endpoint()).value(), Soon()).value();
  Frames sent, body;
  Append(sent, MessageType::kExists, 1, Unknown(2));
  Append(sent, MessageType::kExists, 2, Unknown(3));
  for (const uint8_t byte : sent) EXPECT(SendAll(socket, &byte, 1, Soon()).ok());
  EXPECT(Receive(socket, body) == 1 && Decode<Flags>(body).value().flags.size() == 2);
  EXPECT(Receive(socket, body) == 2 && Decode<Flags>(body).value().flags.size() == 3);
}

// Takes one question and sends the given bytes, one at a time.
class SlowMaster {
 public:
  explicit SlowMaster(Frames answer) : answer_(std::move(answer)) {
    thread_ = std::thread([this] { Serve(); });
  }
  ~SlowMaster() { thread_.join(); }

  std::string endpoint() const { return LocalAddress(listener_).value().ToString(); }

 private:
  void Serve() {
    MC_CHECK(WaitFor(listener_, POLLIN, Soon()).ok(), "nobody came");
    const Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    Frames question;
    Receive(socket, question);
    for (const uint8_t byte : answer_) {
      if (!SendAll(socket, &byte, 1, Soon()).ok()) return;
    }
  }

  const Fd listener_ = ListenTcp({"127.0.0.1", 0}).value();
  const Frames answer_;
  std::thread thread_;
};

TEST(AnswerThatComesAByteAtATimeIsTaken) {
  Frames answer;
  const size_t begin = BeginFrame(answer);
  Encode(Flags{std::vector<bool>(500, true)}, answer);
  EndFrame(answer, begin, static_cast<uint8_t>(MessageType::kExists) | kAnswer, 1);
  const SlowMaster master(answer);
  MasterClient client(master.endpoint());
  const auto reply = client.Call<Flags>(MessageType::kExists, Unknown(500), Soon());
  EXPECT(reply.ok() && reply.value().flags == std::vector<bool>(500, true));
}

TEST(AnswerToAnotherQuestionIsNotTaken) {
  Frames answer;
  const size_t begin = BeginFrame(answer);
  Encode(Flags{{true}}, answer);
  EndFrame(answer, begin, static_cast<uint8_t>(MessageType::kExists) | kAnswer, 2);
  const SlowMaster master(answer);
  MasterClient client(master.endpoint());
  const auto reply = client.Call<Flags>(MessageType::kExists, Unknown(1), Soon());
  EXPECT(reply.status().code() == Code::kWire);
}

int FamilyOf(const Fd& socket) {
  int family = 0;
  socklen_t size = sizeof family;
  MC_CHECK(getsockopt(socket.get(), SOL_SOCKET, SO_DOMAIN, &family, &size) == 0, "SO_DOMAIN");
  return family;
}

TEST(MasterOfThisHostIsAskedAtItsDoor) {
  std::vector<std::string> addresses{"127.0.0.1:0", "0.0.0.0:0"};
  if (ListenTcp({"::1", 0}).ok()) addresses.push_back("[::]:0");
  for (const std::string& listen : addresses) {
    const auto server = StartMaster(listen);
    const uint16_t port = ParseAddress(server->endpoint()).value().port;
    const Fd door = Nearest(ConnectTcp({"127.0.0.1", port}, Soon()).value());
    EXPECT(FamilyOf(door) == AF_UNIX);
    Frames sent, body;
    Append(sent, MessageType::kExists, 1, Unknown(2));
    EXPECT(SendAll(door, sent.data(), sent.size(), Soon()).ok());
    EXPECT(Receive(door, body) == 1 && Decode<Flags>(body).value().flags.size() == 2);
  }
}

TEST(DoorOfAnotherAddressIsLeftAlone) {
  for (const std::string listen : {"127.0.0.1:0", "0.0.0.0:0"}) {
    const auto server = StartMaster(listen);
    const Address other{"::1", ParseAddress(server->endpoint()).value().port};
    const auto deaf = ListenTcp(other);
    if (!deaf.ok()) return;  // this machine has no IPv6
    EXPECT(FamilyOf(Nearest(ConnectTcp(other, Soon()).value())) == AF_INET6);
  }
}

TEST(MasterThatWasStoppedListensNoMore) {
  const auto server = StartMaster();
  const Address address = ParseAddress(server->endpoint()).value();
  const Fd caller = ConnectTcp(address, Soon()).value();
  server->Stop();
  EXPECT(!ConnectTcp(address, Soon()).ok());
  EXPECT(ListenTcp(address).ok());
  EXPECT(OpenDoor(address).ok());
  uint8_t byte = 0;
  EXPECT(!RecvAll(caller, &byte, 1, Soon()).ok());
}

TEST(MasterThatSaysNothingIsUnavailable) {
  const Fd deaf = ListenTcp({"127.0.0.1", 0}).value();
  MasterClient client(LocalAddress(deaf).value().ToString());
  const auto reply = client.Call<Stats>(MessageType::kStats, One{}, Deadline::After(0.05));
  EXPECT(reply.status().code() == Code::kUnavailable);
}

TEST(QuestionsOverConnectionsOfAnEarlierMasterAreAskedAgain) {
  auto server = StartMaster();
  const std::string endpoint = server->endpoint();
  MasterClient client(endpoint);
  std::vector<std::thread> callers;  // so that several connections are kept
  for (int caller = 0; caller < 4; ++caller) {
    callers.emplace_back([&] {
      for (int call = 0; call < 100; ++call) {
        MC_CHECK(client.Call<Stats>(MessageType::kStats, One{}, Soon()).ok(), "stats");
      }
    });
  }
  for (auto& caller : callers) caller.join();
  server = nullptr;
  server = StartMaster(endpoint);
  EXPECT(client.Call<Stats>(MessageType::kStats, One{}, Soon()).ok());
  server = nullptr;
  server = StartMaster(endpoint);
  const std::vector<Keys> questions(3, Unknown(5));
  EXPECT(client.CallAll<Flags>(MessageType::kExists, questions, Soon()).ok());
  server = nullptr;
  const auto away = client.Call<Stats>(MessageType::kStats, One{}, Soon());
  EXPECT(away.status().code() == Code::kUnavailable);
}

double ProcessorSeconds() {
  rusage used;
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

// Its clients' share is counted as well.
TEST(IdleMasterWithTenClientsUsesLessThanAHundredthOfACore) {
  constexpr double kWatched_s = 1.5;
  const auto server = StartMaster("127.0.0.1:0", /*client_ttl_s=*/3);
  std::vector<std::unique_ptr<Client>> clients;
  for (int count = 0; count < 10; ++count) {
    clients.push_back(std::make_unique<Client>(Engine::Create({}).value(),
                                               Client::Options{server->endpoint(), 1, 5}));
  }
  const Deadline deadline = Soon();
  while (clients[0]->Report().value().clients < 10) MC_CHECK(!deadline.passed(), "no session");
  const double before_s = ProcessorSeconds();
  std::this_thread::sleep_for(std::chrono::duration<double>(kWatched_s));
  EXPECT(ProcessorSeconds() - before_s < kWatched_s / 100);
}

}  // namespace
}  // namespace mooncake::store

RUN_TESTS()
