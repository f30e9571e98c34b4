#include "transfer/tcp_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <vector>

#include "transfer/tcp_connection.h"

namespace mooncake {
namespace {

// Host and port that peers are told: what was configured, with the port that was bound.
Result<std::string> Endpoint(const Address& listen, const Fd& listener) {
  auto bound = LocalAddress(listener);
  if (!bound.ok()) return bound.status();
  return Address{listen.host, bound.value().port}.ToString();
}

void Configure(const Fd& socket) {
  const int on = 1;
  const int idle_s = 30;
  setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  // A host that vanishes without a word is noticed some minutes later.
  setsockopt(socket.get(), SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
  setsockopt(socket.get(), IPPROTO_TCP, TCP_KEEPIDLE, &idle_s, sizeof idle_s);
}

}  // namespace

Result<std::shared_ptr<TcpServer>> TcpServer::Create(const Address& listen, Owner& owner) {
  auto listener = ListenTcp(listen);
  if (!listener.ok()) return listener.status();
  auto endpoint = Endpoint(listen, listener.value());
  if (!endpoint.ok()) return endpoint.status();
  return std::shared_ptr<TcpServer>(
      new TcpServer(std::move(listener).value(), std::move(endpoint).value(), owner));
}

TcpServer::TcpServer(Fd listener, std::string endpoint, Owner& owner)
    : listener_(std::move(listener)), endpoint_(std::move(endpoint)), owner_(owner) {}

TcpServer::~TcpServer() = default;

void TcpServer::Start() {
  token_ = owner_.loop->Watch(listener_.socket(), EPOLLIN, shared_from_this());
}

void TcpServer::OnReady(uint64_t, uint32_t) {
  for (Fd socket = listener_.Accept(); socket.valid(); socket = listener_.Accept()) {
    Configure(socket);
    auto connection = std::make_shared<TcpConnection>(std::move(socket), owner_, *this);
    connections_.emplace(connection.get(), connection);
    connection->Start();
    owner_.strangers->Add([weak = std::weak_ptr(connection)] {
      const auto silent = weak.lock();
      if (silent != nullptr && silent->peer_id() == 0) silent->Close();
    });
  }
}

void TcpServer::CloseOf(uint64_t peer_id) {
  CloseIf([&](const TcpConnection& connection) { return connection.peer_id() == peer_id; });
}

void TcpServer::Withdraw(uint64_t segment_id) {
  CloseIf([&](const TcpConnection& connection) { return connection.IsMoving(segment_id); });
}

void TcpServer::CloseIf(const std::function<bool(const TcpConnection&)>& is_meant) {
  std::vector<std::shared_ptr<TcpConnection>> found;
  for (const auto& [key, connection] : connections_) {
    if (is_meant(*connection)) found.push_back(connection);
  }
  for (const auto& connection : found) connection->Close();
}

void TcpServer::Stop() {
  owner_.loop->Forget(token_);
  listener_.Close();
  while (!connections_.empty()) {
    const std::shared_ptr<TcpConnection> connection = connections_.begin()->second;
    connection->Close();
  }
}

void TcpServer::Drop(TcpConnection& connection) { connections_.erase(&connection); }

}  // namespace mooncake
