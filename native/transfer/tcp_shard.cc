#include "transfer/tcp_shard.h"

#include <utility>
#include <vector>

#include "transfer/tcp_connection.h"

namespace mooncake {

TcpShard::TcpShard(std::shared_ptr<Loop> loop, Owner& owner, CloseLaneAnywhere close_lane)
    : loop_(std::move(loop)), owner_(owner), close_lane_(std::move(close_lane)) {}

TcpShard::~TcpShard() = default;

std::function<void()> TcpShard::Adopt(Fd socket) {
  auto connection = std::make_shared<TcpConnection>(std::move(socket), *this);
  connections_.emplace(connection.get(), connection);
  connection->Start();
  return [loop = loop_, weak = std::weak_ptr(connection)] {
    loop->Post([weak] {
      const auto silent = weak.lock();
      if (silent != nullptr && silent->name().peer_id == 0) silent->Close();
    });
  };
}

void TcpShard::CloseOf(uint64_t peer_id) {
  CloseWhere([=](const TcpConnection& one) { return one.name().peer_id == peer_id; });
}

void TcpShard::CloseUsersOf(uint64_t segment_id) {
  CloseWhere([=](const TcpConnection& one) { return one.IsMoving(segment_id); });
}

bool TcpShard::CloseLane(LaneName lane) {
  return CloseWhere([=](const TcpConnection& one) {
    return one.name().peer_id == lane.peer_id && one.name().lane_id == lane.lane_id;
  });
}

void TcpShard::CloseAll() {
  CloseWhere([](const TcpConnection&) { return true; });
}

void TcpShard::Drop(TcpConnection& connection) { connections_.erase(&connection); }

bool TcpShard::CloseWhere(const Predicate& is_meant) {
  std::vector<std::shared_ptr<TcpConnection>> found;
  for (const auto& [key, connection] : connections_) {
    if (is_meant(*connection)) found.push_back(connection);
  }
  for (const auto& connection : found) connection->Close();
  return !found.empty();
}

}  // namespace mooncake
