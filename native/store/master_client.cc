#include "store/master_client.h"

#include "base/socket.h"
#include "store/door.h"

namespace mooncake::store {
namespace {

constexpr size_t kIdleConnections = 16;

}  // namespace

// A connected line, or one that is yet to be.
Line MasterClient::TakeIdle() {
  std::lock_guard lock(mutex_);
  if (idle_.empty()) return Line();
  Line line = std::move(idle_.back());
  idle_.pop_back();
  return line;
}

void MasterClient::KeepIdle(Line line) {
  line.Shrink();
  std::lock_guard lock(mutex_);
  if (!is_closed_ && idle_.size() < kIdleConnections) idle_.push_back(std::move(line));
}

void MasterClient::Close() {
  std::lock_guard lock(mutex_);
  is_closed_ = true;
  idle_.clear();
}

// A pooled connection may have died unseen, with a master that was restarted since.
Status MasterClient::Exchange(Line line, Deadline deadline, const Line::Take& take) {
  Status status(Code::kPeerUnreachable, "not connected");
  while (line.is_connected() && status.code() == Code::kPeerUnreachable) {
    status = line.Exchange(deadline, take);
    if (status.code() == Code::kPeerUnreachable) line.Connect(TakeIdle().Disconnect());
  }
  if (!line.is_connected()) status = ExchangeAnew(line, deadline, take);
  if (status.ok()) KeepIdle(std::move(line));
  if (status.code() == Code::kTimeout) {
    return {Code::kUnavailable, "the master at " + address_ + " did not answer in time"};
  }
  if (status.code() == Code::kPeerUnreachable) {
    return {Code::kUnavailable, "the master at " + address_ + " is away: " + status.message()};
  }
  if (status.code() == Code::kWire) {
    return {Code::kWire, "at " + address_ + " no master of a store answers clients and nodes: " +
                             status.message()};
  }
  return status;
}

Status MasterClient::ExchangeAnew(Line& line, Deadline deadline, const Line::Take& take) {
  const auto address = ParseAddress(address_);
  if (!address.ok()) return address.status();
  auto socket = ConnectTcp(address.value(), deadline);
  if (!socket.ok()) return socket.status();
  line.Connect(Nearest(std::move(socket).value()));
  return line.Exchange(deadline, take);
}

}  // namespace mooncake::store
