#include "store/master_client.h"

#include "wire/frame.h"

namespace mooncake::store {
namespace {

constexpr size_t kIdleConnections = 16;

}  // namespace

Fd MasterClient::TakeIdle() {
  std::lock_guard lock(mutex_);
  if (idle_.empty()) return Fd();
  Fd socket = std::move(idle_.back());
  idle_.pop_back();
  return socket;
}

void MasterClient::KeepIdle(Fd socket) {
  std::lock_guard lock(mutex_);
  if (idle_.size() < kIdleConnections) idle_.push_back(std::move(socket));
}

Result<Fd> MasterClient::Connect(Deadline deadline) {
  auto address = ParseAddress(address_);
  if (!address.ok()) return address.status();
  return ConnectTcp(address.value(), deadline);
}

Status MasterClient::Exchange(MessageType type, const std::vector<uint8_t>& body, Deadline deadline,
                              std::vector<uint8_t>* answer) {
  if (body.size() > kFrameBodyMax) {
    return {Code::kInvalidArgument, "a request of " + std::to_string(body.size()) +
                                        " bytes; at most 64 MiB fit one, make the batch smaller"};
  }
  // A pooled connection may have died unseen, with a master that was restarted since.
  for (Fd socket = TakeIdle(); socket.valid(); socket = TakeIdle()) {
    const Status status = ExchangeOn(socket, type, body, deadline, answer);
    if (status.ok()) KeepIdle(std::move(socket));
    if (status.code() != Code::kPeerUnreachable) return status;
  }
  auto socket = Connect(deadline);
  Status status = socket.status();
  if (socket.ok()) status = ExchangeOn(socket.value(), type, body, deadline, answer);
  if (status.ok()) KeepIdle(std::move(socket).value());
  if (status.code() == Code::kPeerUnreachable) {
    return {Code::kUnavailable, "the master at " + address_ + " is away: " + status.message()};
  }
  return status;
}

Status MasterClient::ExchangeOn(const Fd& socket, MessageType type,
                                const std::vector<uint8_t>& body, Deadline deadline,
                                std::vector<uint8_t>* answer) {
  uint64_t request_id = 0;  // none: no answer is wanted
  if (answer != nullptr) {
    std::lock_guard lock(mutex_);
    request_id = ++last_request_;
  }
  const auto header = EncodeFrameHeader(
      {static_cast<uint8_t>(type), static_cast<uint32_t>(body.size()), request_id});
  std::vector<uint8_t> frame(header.begin(), header.end());
  frame.insert(frame.end(), body.begin(), body.end());
  Status status = SendAll(socket, frame.data(), frame.size(), deadline);
  if (status.ok() && answer != nullptr) {
    answer->clear();
    status = Receive(socket, type, request_id, deadline, *answer);
  }
  if (status.code() != Code::kTimeout) return status;
  return {Code::kUnavailable, "the master at " + address_ + " did not answer in time"};
}

Status MasterClient::Receive(const Fd& socket, MessageType type, uint64_t request_id,
                             Deadline deadline, std::vector<uint8_t>& answer) {
  FrameHeaderBytes bytes;
  MC_RETURN_IF_ERROR(RecvAll(socket, bytes.data(), bytes.size(), deadline));
  const auto header = DecodeFrameHeader(bytes);
  if (!header.ok()) return header.status();
  const FrameHeader& frame = header.value();
  answer.resize(frame.body_bytes);
  MC_RETURN_IF_ERROR(RecvAll(socket, answer.data(), answer.size(), deadline));
  if (frame.type == kError) {
    const auto error = Decode<ErrorBody>(answer);
    if (!error.ok()) return error.status();
    return {static_cast<Code>(error.value().code), "master: " + error.value().message};
  }
  if (frame.request_id != request_id || frame.type != (static_cast<uint8_t>(type) | kAnswer)) {
    return {Code::kWire, address_ + " answered another question; it is no master of this version"};
  }
  return Status::Ok();
}

}  // namespace mooncake::store
