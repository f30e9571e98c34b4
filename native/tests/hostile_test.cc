// Callers of an engine that say nothing, or what no engine of ours would say.
#include <sys/socket.h>

#include <cstring>
#include <filesystem>

#include "base/random.h"
#include "tests/test.h"
#include "transfer/engine.h"
#include "transfer/strangers.h"
#include "transfer/transports/tcp_lane.h"
#include "transfer/unix_socket.h"

namespace mooncake {
namespace {

Deadline Soon() { return Deadline::After(20); }

bool IsClosedByPeer(const Fd& socket) {
  uint8_t byte;
  return RecvAll(socket, &byte, 1, Soon()).code() == Code::kPeerUnreachable;
}

size_t CountOpenFiles() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return std::distance(begin(files), end(files));
}

TEST(ConnectionsThatNeverSayHelloAreClosed) {
  const auto engine = Engine::Create({.hello_s = 0.2}).value();
  const Address address = ParseAddress(engine->endpoint()).value();
  const auto greeted = TcpLane::Connect(address, {RandomId(), 0}, Soon()).value().reply;
  const Fd tcp = ConnectTcp(address, Soon()).value();
  const Fd local = ConnectUnix(greeted.unix_name).value();
  EXPECT(IsClosedByPeer(tcp));
  EXPECT(IsClosedByPeer(local));
}

TEST(ConnectionsThatSaidHelloStayOpen) {
  const auto engine = Engine::Create({.hello_s = 0.2}).value();
  const Address address = ParseAddress(engine->endpoint()).value();
  const auto greeted = TcpLane::Connect(address, {RandomId(), 0}, Soon()).value();
  EXPECT(IsClosedByPeer(ConnectTcp(address, Soon()).value()));  // one that came later
  EXPECT(greeted.lane->IsQuiet());
  EXPECT(greeted.lane->Open({1, ""}, Soon()).status().code() == Code::kNotFound);
}

TEST(TheStrangerThatWaitsLongestMakesRoom) {
  const auto loop = Loop::Create().value();
  const auto strangers = Strangers::Create(60).value();
  std::vector<size_t> dropped;
  loop->Run([&] {
    strangers->Start(*loop);
    for (size_t at = 0; at < Strangers::kMax + 2; ++at) {
      strangers->Add([&dropped, at] { dropped.push_back(at); });
    }
  });
  EXPECT((dropped == std::vector<size_t>{0, 1}));
  loop->Stop();
}

TEST(NameThatFitsNoUnixAddressIsRefused) {
  HelloReply reply{1, "host", std::string(kUnixNameBytes, 'x')};
  EXPECT(DecodeHelloReply(Encode(reply)).ok());
  reply.unix_name += 'x';
  EXPECT(DecodeHelloReply(Encode(reply)).status().code() == Code::kWire);
}

TEST(PeerCannotSayThatNothingHasMoved) {
  const auto said = [](Code code) { return DecodeError(EncodeError({code, "no"})).code(); };
  EXPECT(said(Code::kFenced) == Code::kFenced);
  EXPECT(said(Code::kInvalidArgument) == Code::kWire);
  EXPECT(said(Code::kBufferNotRegistered) == Code::kWire);
}

TEST(SecondDescriptorOfOnePacketIsNotKept) {
  int ends[2];
  EXPECT(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, ends) == 0);
  const Fd from(ends[0]), to(ends[1]);
  const size_t before = CountOpenFiles();
  Bytes frame = Frame(Message::kBye, 0, {});
  iovec run{frame.data(), frame.size()};
  alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &run;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* part = CMSG_FIRSTHDR(&message);
  part->cmsg_level = SOL_SOCKET;
  part->cmsg_type = SCM_RIGHTS;
  part->cmsg_len = CMSG_LEN(2 * sizeof(int));
  std::memcpy(CMSG_DATA(part), ends, sizeof ends);
  EXPECT(sendmsg(from.get(), &message, 0) > 0);
  EXPECT(ReceivePacket(to).ok());
  EXPECT(CountOpenFiles() == before);
}

}  // namespace
}  // namespace mooncake

RUN_TESTS()
