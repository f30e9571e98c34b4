#include "transfer/shm_server.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>

#include "base/random.h"
#include "transfer/shm_client.h"
#include "transfer/unix_socket.h"

namespace mooncake {
namespace {

std::string RandomName() {
  char name[64];
  std::snprintf(name, sizeof name, "mooncake-%016llx%016llx",
                static_cast<unsigned long long>(RandomId()),
                static_cast<unsigned long long>(RandomId()));
  return name;
}

}  // namespace

Result<std::shared_ptr<ShmServer>> ShmServer::Create(Owner& owner) {
  std::string name = RandomName();
  auto listener = ListenUnix(name);
  if (!listener.ok()) return listener.status();
  return std::shared_ptr<ShmServer>(
      new ShmServer(std::move(listener).value(), std::move(name), owner));
}

ShmServer::ShmServer(Fd listener, std::string name, Owner& owner)
    : listener_(std::move(listener)), name_(std::move(name)), owner_(owner) {}

ShmServer::~ShmServer() = default;

void ShmServer::Start() {
  token_ = owner_.loop->Watch(listener_.socket(), EPOLLIN, shared_from_this());
}

void ShmServer::OnReady(uint64_t, uint32_t) {
  for (Fd socket = listener_.Accept(); socket.valid(); socket = listener_.Accept()) {
    auto peer = PeerCredentials(socket);
    if (!peer.ok() || peer.value().uid != geteuid()) continue;  // it will come over TCP
    auto client = std::make_shared<ShmClient>(std::move(socket), std::move(peer.value().pidfd),
                                              owner_, *this);
    {
      const std::lock_guard lock(mutex_);
      clients_.emplace(client.get(), client);
    }
    client->Start();
    owner_.strangers->Add([weak = std::weak_ptr(client)] {
      const auto silent = weak.lock();
      if (silent != nullptr && silent->peer_id() == 0) silent->Leave();
    });
  }
}

void ShmServer::Revoke(uint64_t peer_id) {
  for (const auto& [key, client] : Snapshot()) {
    if (client->peer_id() == peer_id) client->Revoke();
  }
}

void ShmServer::Withdraw(uint64_t segment_id) {
  for (const auto& [key, client] : Snapshot()) client->Withdraw(segment_id);
}

void ShmServer::Stop() {
  owner_.loop->Forget(token_);
  listener_.Close();
  for (const auto& [key, client] : Snapshot()) client->Abandon();
}

bool ShmServer::WaitUntilHarmless(uint64_t peer_id, Deadline deadline) {
  std::unique_lock lock(mutex_);
  return changed_.wait_until(lock, deadline.time(), [&] {
    return std::none_of(clients_.begin(), clients_.end(), [&](const auto& entry) {
      return entry.first->peer_id() == peer_id && entry.first->is_awaited();
    });
  });
}

ShmServer::Clients ShmServer::Snapshot() const {
  const std::lock_guard lock(mutex_);
  return clients_;
}

void ShmServer::Drop(ShmClient& client) {
  const std::lock_guard lock(mutex_);
  clients_.erase(&client);
  changed_.notify_all();
}

void ShmServer::Changed() {
  const std::lock_guard lock(mutex_);
  changed_.notify_all();
}

}  // namespace mooncake
