// A look at a path, and the echo that it is made of.
#include "transfer/probe.h"

#include <string>
#include <vector>

#include "base/random.h"
#include "base/socket.h"
#include "tests/test.h"
#include "transfer/engine.h"
#include "transfer/protocol.h"

namespace mooncake {
namespace {

Deadline Soon() { return Deadline::After(20); }

Fd Connect(const Engine& engine) {
  return ConnectTcp(ParseAddress(engine.endpoint()).value(), Soon()).value();
}

// A connection that has said hello and heard the answer.
Fd Greet(const Engine& engine) {
  Fd socket = Connect(engine);
  const Bytes hello = Frame(Message::kHello, 1, Encode(Hello{RandomId(), 0}));
  EXPECT(SendAll(socket, hello.data(), hello.size(), Soon()).ok());
  FrameHeaderBytes head;
  EXPECT(RecvAll(socket, head.data(), head.size(), Soon()).ok());
  Bytes answer(DecodeFrameHeader(head).value().body_bytes);
  EXPECT(RecvAll(socket, answer.data(), answer.size(), Soon()).ok());
  return socket;
}

// True: the engine closed the connection instead of answering.
bool IsRefused(const Fd& socket, Message type, uint32_t body_bytes) {
  const FrameHeaderBytes head = EncodeFrameHeader({static_cast<uint8_t>(type), body_bytes, 1});
  EXPECT(SendAll(socket, head.data(), head.size(), Soon()).ok());
  uint8_t byte;
  return RecvAll(socket, &byte, 1, Soon()).code() == Code::kPeerUnreachable;
}

TEST(APathIsMeasured) {
  const auto engine = Engine::Create({}).value();
  const auto probe = ProbePath("127.0.0.1", engine->endpoint(), 0, Soon());
  EXPECT(probe.ok());
  EXPECT(probe.value().endpoints == std::vector<std::string>{engine->endpoint()});
  EXPECT(probe.value().host_id == engine->host_id());
  EXPECT(probe.value().rate_bytes_per_s > 0);
}

TEST(AnotherEngineIsTold) {
  const auto engine = Engine::Create({}).value();
  const uint64_t id = ProbePath("", engine->endpoint(), 0, Soon()).value().engine_id;
  EXPECT(ProbePath("", engine->endpoint(), id, Soon()).ok());
  EXPECT(ProbePath("", engine->endpoint(), id + 1, Soon()).status().code() == Code::kWrongPeer);
  EXPECT(ProbePath("127.0.0.1", engine->endpoint(), id + 1, Soon()).status().code() ==
         Code::kWrongPeer);
}

TEST(AnEchoIsRefusedBeforeTheHelloAndWhenItIsTooLong) {
  const auto engine = Engine::Create({}).value();
  EXPECT(IsRefused(Connect(*engine), Message::kEcho, 0));
  EXPECT(IsRefused(Greet(*engine), Message::kEcho, kEchoBytes + 1));
}

}  // namespace
}  // namespace mooncake

RUN_TESTS()
