#include "transfer/tcp_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <utility>

namespace mooncake {
namespace {

constexpr int kServeThreadsMax = 64;

void Configure(const Fd& socket) {
  const int on = 1;
  const int idle_s = 30;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // A host that vanishes without a word is noticed some minutes later.
  setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(socket.get(), IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
}

Status CheckCounts(const EngineOptions& options) {
  if (options.serve_threads < 1 || options.serve_threads > kServeThreadsMax) {
    return Status(Code::kInvalidArgument, "serve_threads is " +
                                              std::to_string(options.serve_threads) + "; 1 to " +
                                              std::to_string(kServeThreadsMax));
  }
  if (options.addresses.size() >= kEndpointsMax) {
    return Status(Code::kInvalidArgument, std::to_string(options.addresses.size()) +
                                              " addresses; fewer than " +
                                              std::to_string(kEndpointsMax) + " are possible");
  }
  return Status::Ok();
}

}  // namespace

Result<std::shared_ptr<TcpServer>> TcpServer::Create(const EngineOptions& options, Owner& owner) {
  MC_RETURN_IF_ERROR(CheckCounts(options));
  auto first = ParseAddress(options.listen);
  if (!first.ok()) return first.status();
  std::shared_ptr<TcpServer> server(new TcpServer(owner));
  MC_RETURN_IF_ERROR(server->Listen(first.value()));
  const uint16_t port = ParseAddress(server->endpoints_.front()).value().port;
  for (const std::string& host : options.addresses) {
    if (host == first.value().host) continue;
    if (server->Listen({host, port}).ok()) continue;
    MC_RETURN_IF_ERROR(server->Listen({host, 0}));
  }
  return server;
}

TcpServer::~TcpServer() = default;

// Peers are told the host that was configured, with the port that was bound.
Status TcpServer::Listen(const Address& address) {
  auto socket = ListenTcp(address);
  if (!socket.ok()) return socket.status();
  auto bound = LocalAddress(socket.value());
  if (!bound.ok()) return bound.status();
  endpoints_.push_back(Address{address.host, bound.value().port}.ToString());
  listeners_.emplace_back(std::move(socket).value());
  return Status::Ok();
}

Status TcpServer::Start(int serve_threads) {
  AddShard(owner_.loop);
  while (shards_.size() < static_cast<size_t>(serve_threads)) {
    auto loop = Loop::Create();
    if (!loop.ok()) return loop.status();
    AddShard(std::move(loop).value());
  }
  for (const Listener& listener : listeners_) {
    tokens_.push_back(owner_.loop->Watch(listener.socket(), EPOLLIN, shared_from_this()));
  }
  return Status::Ok();
}

void TcpServer::AddShard(std::shared_ptr<Loop> loop) {
  const auto close_lane = [this](LaneName lane, std::function<void()> done) {
    CloseLane(0, lane, std::move(done));
  };
  shards_.push_back(std::make_unique<TcpShard>(std::move(loop), owner_, close_lane));
}

void TcpServer::OnReady(uint64_t token, uint32_t) {
  const auto found = std::find(tokens_.begin(), tokens_.end(), token);
  Listener& listener = listeners_[static_cast<size_t>(found - tokens_.begin())];
  for (Fd socket = listener.Accept(); socket.valid(); socket = listener.Accept()) {
    Configure(socket);
    Serve(std::move(socket));
  }
}

// Hands a connection to the loop whose turn it is.
void TcpServer::Serve(Fd socket) {
  TcpShard& shard = *shards_[next_shard_++ % shards_.size()];
  std::function<void()> drop;
  if (!shard.loop().Run([&] { drop = shard.Adopt(std::move(socket)); })) return;
  owner_.strangers->Add(std::move(drop));
}

void TcpServer::CloseOf(uint64_t peer_id) {
  for (const auto& shard : shards_) shard->loop().Run([&] { shard->CloseOf(peer_id); });
}

void TcpServer::Withdraw(uint64_t segment_id) {
  for (const auto& shard : shards_) shard->loop().Run([&] { shard->CloseUsersOf(segment_id); });
}

// Goes from shard to shard until the connection is found; it need not be there.
void TcpServer::CloseLane(size_t shard, LaneName lane, std::function<void()> done) {
  if (shard == shards_.size()) return done();
  shards_[shard]->loop().Post([this, shard, lane, done = std::move(done)] {
    if (shards_[shard]->CloseLane(lane)) return done();
    CloseLane(shard + 1, lane, done);
  });
}

void TcpServer::Stop() {
  for (const uint64_t token : tokens_) owner_.loop->Forget(token);
  for (Listener& listener : listeners_) listener.Close();
  for (const auto& shard : shards_) shard->loop().Run([&] { shard->CloseAll(); });
  for (const auto& shard : shards_) {
    if (&shard->loop() != owner_.loop.get()) shard->loop().Stop();
  }
}

}  // namespace mooncake
