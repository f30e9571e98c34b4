// TCP over several paths: pairing of addresses, slices, lanes, and batches whose paths are cut.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <chrono>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "base/random.h"
#include "tests/test.h"
#include "transfer/engine.h"
#include "transfer/slicer.h"
#include "transfer/transports/tcp_lane.h"
#include "transfer/transports/tcp_route.h"

namespace mooncake {
namespace {

Deadline Soon() { return Deadline::After(20); }

std::vector<std::string> Texts(const std::vector<Route>& routes) {
  std::vector<std::string> texts;
  for (const Route& route : routes) texts.push_back(route.ToString());
  return texts;
}

TEST(AddressesOfOneSubnetArePaired) {
  const std::vector<std::string> networks = {"127.0.0.1/8", "10.1.0.1/24", "10.2.0.1/24",
                                             "fd00::1/64"};
  const auto pair = [&](const std::vector<std::string>& locals,
                        const std::vector<Address>& remotes) {
    return Texts(PairAddresses(locals, networks, remotes));
  };
  using T = std::vector<std::string>;
  EXPECT((pair({}, {{"10.1.0.2", 7}}) == T{"10.1.0.2:7"}));
  EXPECT((pair({"10.1.0.1", "10.2.0.1"}, {{"10.2.0.2", 7}, {"10.1.0.2", 8}}) ==
          T{"10.1.0.1 -> 10.1.0.2:8", "10.2.0.1 -> 10.2.0.2:7"}));
  EXPECT((pair({"10.1.0.1"}, {{"10.1.0.2", 7}, {"10.1.0.3", 7}, {"10.9.0.1", 7}}) ==
          T{"10.9.0.1:7", "10.1.0.1 -> 10.1.0.2:7", "10.1.0.1 -> 10.1.0.3:7"}));
  EXPECT((pair({"127.0.0.2", "127.0.0.3"}, {{"127.0.0.9", 7}}) ==
          T{"127.0.0.2 -> 127.0.0.9:7", "127.0.0.3 -> 127.0.0.9:7"}));
  EXPECT((pair({"fd00::1"}, {{"fd00::2", 7}}) == T{"fd00::1 -> [fd00::2]:7"}));
  EXPECT((pair({"10.7.0.1"}, {{"host", 7}}) == T{"host:7"}));
}

TEST(WhatAPeerSaysOfItsAddressesIsPutRight) {
  const auto reach = [](const std::vector<std::string>& endpoints, const Address& answered) {
    std::vector<std::string> texts;
    for (const Address& one : Reachable(endpoints, answered)) texts.push_back(one.ToString());
    return texts;
  };
  using T = std::vector<std::string>;
  EXPECT((reach({"a:1"}, {"10.0.0.9", 5}) == T{"10.0.0.9:5"}));
  EXPECT((reach({"0.0.0.0:1", "10.0.0.9:2", "10.0.1.9:2"}, {"10.0.0.9", 1}) ==
          T{"10.0.0.9:1", "10.0.1.9:2"}));
  EXPECT((reach({"127.0.0.1:1", "10.0.0.9:1"}, {"10.0.0.9", 1}) == T{"10.0.0.9:1"}));
  EXPECT(
      (reach({"127.0.0.1:1", "127.0.0.2:1"}, {"127.0.0.1", 1}) == T{"127.0.0.1:1", "127.0.0.2:1"}));
  EXPECT((reach({"10.0.0.9:1", "garbage", "10.0.1.9:1"}, {"192.168.0.1", 1}) ==
          T{"192.168.0.1:1", "10.0.0.9:1", "10.0.1.9:1"}));
}

TEST(SlicesCoverABatch) {
  const std::vector<Piece> pieces = {{0, 0, 5 * kRequestBytes / 2}, {7, 9, 1}};
  Slicer slicer(pieces);
  EXPECT(slicer.left_bytes() == TotalBytes(pieces));
  std::vector<Piece> cut;
  std::vector<Stretch> slices;
  uint64_t total = 0;
  while (slicer.left_bytes() > 0) {
    slices.push_back(slicer.Next(kRequestBytes));
    slicer.Cut(slices.back(), cut);
    EXPECT(!cut.empty() && TotalBytes(cut) == slices.back().bytes);
    total += slices.back().bytes;
  }
  EXPECT(total == TotalBytes(pieces) && slices.size() == 3);
  slicer.PutBack(slices[1]);
  slicer.Cut(slicer.Next(10), cut);
  EXPECT(cut.size() == 1 && cut[0].offset == kRequestBytes && cut[0].length == 10);
  EXPECT(slicer.left_bytes() == kRequestBytes - 10);
  EXPECT(Slicer({}).left_bytes() == 0);
}

TEST(ASliceHasNoMoreThanSoManyPieces) {
  std::vector<Piece> pieces;
  for (uint64_t i = 0; i < 2 * kRequestPieces; ++i) pieces.push_back({16 * i, 32 * i, 8});
  Slicer slicer(pieces);
  EXPECT(slicer.Next(1 << 20).bytes == 8 * kRequestPieces);
  EXPECT(slicer.left_bytes() == 8 * kRequestPieces);
}

TEST(AdjacentPiecesAreJoined) {
  const std::vector<Piece> pieces = {{0, 100, 10}, {10, 110, 5}, {15, 0, 0},
                                     {15, 115, 1}, {16, 200, 1}, {17, 300, 1}};
  const auto joined = Joined(pieces);
  EXPECT(joined.size() == 3 && joined[0].length == 16 && joined[1].offset == 200);
}

EngineOptions Network(const std::vector<std::string>& addresses, int serve_threads = 1) {
  EngineOptions options;
  options.same_host = SameHost::kNetwork;
  options.addresses = addresses;
  options.serve_threads = serve_threads;
  return options;
}

TEST(AnEngineListensOnAllOfItsAddresses) {
  const auto engine = Engine::Create(Network({"127.0.0.2", "127.0.0.3"})).value();
  const Address first = ParseAddress(engine->endpoint()).value();
  const auto greeted = TcpLane::Connect(first, {RandomId()}, Soon()).value();
  EXPECT(greeted.reply.endpoints.size() == 3);
  for (const std::string& endpoint : greeted.reply.endpoints) {
    EXPECT(TcpLane::Connect(ParseAddress(endpoint).value(), {RandomId()}, Soon()).ok());
  }
  EXPECT(Engine::Create(Network({"192.0.2.1"})).status().code() == Code::kSystem);
  EXPECT(Engine::Create(Network({}, 0)).status().code() == Code::kInvalidArgument);
  EXPECT(Engine::Create({.slice_bytes = 0}).status().code() == Code::kInvalidArgument);
}

TEST(ALaneIsClosedOnWhicheverThreadServesIt) {
  const auto engine = Engine::Create(Network({}, 3)).value();
  const Address address = ParseAddress(engine->endpoint()).value();
  const Hello hello{RandomId()};
  const auto connect = [&](const Hello& as) {
    return TcpLane::Connect(address, as, Soon()).value().lane;
  };
  const auto asking = connect(hello);
  for (int i = 0; i < 6; ++i) {
    const auto lane = connect(hello);
    EXPECT(lane->IsQuiet());
    EXPECT(asking->CloseLane(lane->id(), Soon()).ok());
    EXPECT(lane->Open({1, ""}, Soon()).status().code() == Code::kPeerUnreachable);
  }
  EXPECT(asking->CloseLane(RandomId(), Soon()).ok());  // there is none
  const auto foreign = connect({RandomId()});
  EXPECT(asking->CloseLane(foreign->id(), Soon()).ok());
  EXPECT(foreign->Open({1, ""}, Soon()).status().code() == Code::kNotFound);
  EXPECT(asking->CloseLane(asking->id(), Soon()).code() == Code::kPeerUnreachable);
}

TEST(WhatIsAskedBehindTheClosingOfALaneIsAnsweredAfterIt) {
  const auto engine = Engine::Create(Network({}, 2)).value();
  const Address address = ParseAddress(engine->endpoint()).value();
  const auto lane = TcpLane::Connect(address, {RandomId()}, Soon()).value().lane;
  Bytes questions = Frame(Message::kCloseLane, 7, EncodeNumber(RandomId()));
  const Bytes second = Frame(Message::kOpen, 8, Encode(SegmentRef{1, ""}));
  questions.insert(questions.end(), second.begin(), second.end());
  EXPECT(SendAll(lane->socket(), questions.data(), questions.size(), Soon()).ok());
  for (const uint64_t request_id : {7, 8}) {
    FrameHeaderBytes bytes;
    EXPECT(RecvAll(lane->socket(), bytes.data(), bytes.size(), Soon()).ok());
    const auto header = DecodeFrameHeader(bytes);
    EXPECT(header.ok() && header.value().request_id == request_id);
  }
}

TEST(FencesWorkAcrossThreads) {
  const auto engine = Engine::Create(Network({}, 3)).value();
  const Address address = ParseAddress(engine->endpoint()).value();
  const Hello hello{RandomId()};
  std::vector<std::unique_ptr<TcpLane>> lanes;
  for (int i = 0; i < 5; ++i) {
    lanes.push_back(TcpLane::Connect(address, hello, Soon()).value().lane);
  }
  EXPECT(engine->Fence(hello.peer_id, Soon()).value());
  for (const auto& lane : lanes) {
    EXPECT(lane->Open({1, ""}, Soon()).status().code() == Code::kPeerUnreachable);
  }
  EXPECT(TcpLane::Connect(address, hello, Soon()).status().code() == Code::kFenced);
}

// A listener whose queue is full: connecting to it is answered by silence.
struct Silence {
  Silence() : listener(socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0)) {
    sockaddr_in any{};
    any.sin_family = AF_INET;
    any.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT(bind(listener.get(), reinterpret_cast<sockaddr*>(&any), sizeof any) == 0);
    EXPECT(listen(listener.get(), 0) == 0);
    address = LocalAddress(listener).value();
    const SocketAddress to = ResolveNumeric(address).value();
    for (int i = 0; i < 4; ++i) callers.push_back(StartConnect(to).value());
  }

  Fd listener;
  Address address;
  std::vector<Fd> callers;
};

TEST(ConnectingCanBeCancelledAndTimesOut) {
  const Silence silence;
  EXPECT(ConnectTcp(silence.address, Deadline::After(0.05)).status().code() == Code::kTimeout);
  CancelFlag cancel;
  std::thread canceller([&] { cancel.Set(); });
  EXPECT(ConnectTcp(silence.address, {Soon(), &cancel}).status().code() == Code::kCancelled);
  canceller.join();
}

TEST(CloseAndRotateInterruptWhoConnectsToASilentHost) {
  const Silence silence;
  const auto engine = Engine::Create(Network({})).value();
  const auto open = [&] {
    return engine->OpenSegment(silence.address.ToString(), 1, Soon()).status().code();
  };
  const double started_s = MonotonicSeconds();
  auto first = std::async(std::launch::async, open);
  while (first.wait_for(std::chrono::milliseconds(20)) != std::future_status::ready) {
    EXPECT(engine->Rotate().ok());
  }
  EXPECT(first.get() == Code::kFenced);
  auto second = std::async(std::launch::async, open);
  engine->Close();
  EXPECT(second.get() == Code::kClosed);
  EXPECT(MonotonicSeconds() - started_s < 10);
}

TEST(AHostNameIsTriedAtAllOfItsAddresses) {
  const auto engine = Engine::Create(Network({})).value();
  const uint16_t port = ParseAddress(engine->endpoint()).value().port;
  // On most hosts "localhost" is ::1 first, where nobody listens.
  EXPECT(TcpLane::Connect({"localhost", port}, {RandomId()}, Soon()).ok());
  EXPECT(ConnectTcp({"no.such.host.invalid", port}, Soon()).status().code() ==
         Code::kPeerUnreachable);
}

// Two engines with several loopback addresses each, a segment and local memory as large.
struct Pair {
  explicit Pair(uint64_t size_bytes)
      : owner(Engine::Create(Network({"127.0.0.2", "127.0.0.3"}, 2)).value()),
        user(Engine::Create(Network({"127.0.0.2", "127.0.0.3"})).value()),
        segment(owner->CreateSegment(size_bytes).value()),
        local(user->CreateSegment(size_bytes).value()),
        remote(user->OpenSegment(owner->endpoint(), segment->id(), Soon()).value()) {
    for (uint64_t i = 0; i < size_bytes; ++i) local->data()[i] = static_cast<uint8_t>(i * 7 >> 3);
  }

  Status Move(Op op) const {
    const Piece all{local->address(), 0, local->size_bytes()};
    return user->Execute(op, remote, {&all, 1}, {Soon()});
  }
  bool IsEqual() const {
    return std::memcmp(local->data(), segment->data(), local->size_bytes()) == 0;
  }

  std::shared_ptr<Engine> owner;
  std::shared_ptr<Engine> user;
  std::shared_ptr<Segment> segment;
  std::shared_ptr<Segment> local;
  std::shared_ptr<RemoteSegment> remote;
};

TEST(ABatchIsSprayedOverAllPaths) {
  const Pair pair(32 << 20);
  const auto is_unused = [](const PathStatistics& path) {
    return path.written_bytes == 0 || path.read_bytes == 0;
  };
  // A path whose thread had no core for a while gets less than the others.
  for (int round = 0;
       round < 4 || (round < 100 && std::ranges::any_of(pair.user->Statistics(), is_unused));
       ++round) {
    std::memset(pair.segment->data(), round, pair.segment->size_bytes());
    EXPECT(pair.Move(Op::kWrite).ok());
    EXPECT(pair.IsEqual());
    std::memset(pair.segment->data(), round, pair.segment->size_bytes());
    EXPECT(pair.Move(Op::kRead).ok());
    EXPECT(pair.IsEqual());
    EXPECT(pair.Move(Op::kWrite).ok());
  }
  const auto paths = pair.user->Statistics();
  EXPECT(paths.size() == 3);
  for (const PathStatistics& path : paths) {
    EXPECT(path.state == "up" && !is_unused(path));
    EXPECT(path.resent_slices == 0 && path.failures == 0);
  }
}

TEST(APeerThatIsGoneIsLetGoOf) {
  Pair pair(1 << 20);
  const std::string gone = pair.owner->endpoint();
  EXPECT(pair.Move(Op::kWrite).ok());
  pair.owner->Close();
  EXPECT(pair.Move(Op::kWrite).code() == Code::kPeerUnreachable);
  pair.remote.reset();
  const auto other = Engine::Create(Network({})).value();
  const auto segment = other->CreateSegment(1).value();
  EXPECT(pair.user->OpenSegment(other->endpoint(), segment->id(), Soon()).ok());
  for (const PathStatistics& path : pair.user->Statistics()) {
    EXPECT((path.peer == gone) == (path.state == "gone"));
  }
}

}  // namespace
}  // namespace mooncake

RUN_TESTS()
