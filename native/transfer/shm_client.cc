#include "transfer/shm_client.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "transfer/shm_server.h"
#include "transfer/transports/process.h"

namespace mooncake {

ShmClient::ShmClient(Fd socket, Fd pidfd, Owner& owner, ShmServer& server)
    : socket_(std::move(socket)), pidfd_(std::move(pidfd)), owner_(owner), server_(server) {}

void ShmClient::Start() {
  socket_token_ = owner_.loop->Watch(socket_, EPOLLIN, shared_from_this());
  pidfd_token_ = owner_.loop->Watch(pidfd_, EPOLLIN, shared_from_this());
}

void ShmClient::OnReady(uint64_t token, uint32_t) {
  if (token == pidfd_token_) {
    Leave();  // the process is dead, and its mappings and copies with it
  } else {
    Drain();
  }
}

void ShmClient::Revoke() {
  const Status told = SendPacket(socket_, Message::kFenced, 0, {});
  if (!told.ok()) GiveUp();
  if (!HoldsAnyThatCounts()) Leave();
}

void ShmClient::Withdraw(uint64_t segment_id) {
  const bool is_held = std::any_of(holdings_.begin(), holdings_.end(), [&](const auto& entry) {
    return entry.second.segment_id == segment_id;
  });
  if (!is_held || !socket_.valid()) return;
  const Status told = SendPacket(socket_, Message::kSegmentGone, 0, EncodeNumber(segment_id));
  if (!told.ok()) GiveUp();
}

void ShmClient::Leave() {
  if (has_left_) return;
  has_left_ = true;
  Hang();
  owner_.loop->Forget(pidfd_token_);
  holdings_.clear();
  awaited_ = 0;
  server_.Drop(*this);
}

void ShmClient::Abandon() {
  for (auto& [handle, holding] : holdings_) holding.use.Abandon();
  Leave();
}

// It hears nothing any more, but may have said that it let go.
void ShmClient::GiveUp() {
  Drain();
  Hang();
}

// Closes the connection. What the process holds, it may still use.
void ShmClient::Hang() {
  if (!socket_.valid()) return;
  owner_.loop->Forget(socket_token_);
  shutdown(socket_.get(), SHUT_RDWR);  // a forked child may hold the descriptor too
  socket_.Reset();
}

bool ShmClient::HoldsAnyThatCounts() const {
  return std::any_of(holdings_.begin(), holdings_.end(), [](const auto& entry) {
    return entry.second.is_awaited || entry.second.is_lent;
  });
}

void ShmClient::Await(Holding& holding) {
  if (!std::exchange(holding.is_awaited, true)) ++awaited_;
}

void ShmClient::Drain() {
  while (socket_.valid()) {
    auto packet = ReceivePacket(socket_);
    if (packet.ok() && !packet.value()) return;
    Status status = packet.ok() ? OnPacket(*packet.value()) : packet.status();
    if (status.ok()) continue;
    Hang();
    if (!HoldsAnyThatCounts()) Leave();
  }
}

Status ShmClient::OnPacket(const Packet& packet) {
  if (peer_id_ == 0) return OnHello(packet);
  switch (packet.type) {
    case Message::kMap:
      return OnMap(packet);
    case Message::kView:
      return OnView(packet);
    case Message::kRelease:
      return OnRelease(packet);
    case Message::kNotify:
      return OnNotify(packet);
    case Message::kBye:
      Leave();
      return Status::Ok();
    default:
      return Status(Code::kWire, "unexpected packet");
  }
}

Status ShmClient::OnHello(const Packet& packet) {
  if (packet.type != Message::kHello) return Status(Code::kWire, "no hello");
  auto hello = DecodeHello(packet.body);
  if (!hello.ok()) return hello.status();
  const Status admitted = owner_.Admit(hello.value());
  if (!admitted.ok()) {
    MC_RETURN_IF_ERROR(Refuse(packet, admitted));
    return admitted;
  }
  peer_id_ = hello.value().peer_id;
  return SendPacket(socket_, Message::kHelloReply, packet.request_id, Encode(owner_.greeting));
}

Status ShmClient::OnMap(const Packet& packet) {
  auto map = DecodeMap(packet.body);
  if (!map.ok()) return map.status();
  const auto& [handle, segment_id, is_writable] = map.value();
  if (owner_.IsBarred(peer_id_)) {
    return Refuse(packet, Status(Code::kFenced, "fenced by the owner"));
  }
  const auto found = owner_.Find({segment_id, ""});
  if (!found.ok()) return Refuse(packet, found.status());
  const Segment& segment = *found.value();
  if (is_writable && segment.is_read_only()) return Refuse(packet, ReadOnly(segment_id));
  const auto [at, is_new] = holdings_.try_emplace(handle, Holding{segment_id, segment.is_lent()});
  Holding& holding = at->second;
  if (holding.segment_id != segment_id) return Status(Code::kWire, "a handle used twice");
  if (is_new && segment.is_lent()) holding.use = Segment::Use(found.value());
  if (is_writable) Await(holding);
  return Answer(packet, map.value(), segment);
}

Status ShmClient::Answer(const Packet& packet, const Map& map, const Segment& segment) {
  MapReply reply{Describe(segment), 0, 0};
  const Fd* file = map.is_writable ? &segment.writable() : &segment.read_only();
  if (segment.is_lent()) {
    const auto start_time = StartTime(getpid());
    if (!start_time.ok()) return Refuse(packet, start_time.status());
    reply.address = segment.address();
    reply.start_time = start_time.value();
    file = nullptr;
  }
  return SendPacket(socket_, Message::kMapReply, packet.request_id, Encode(reply), file);
}

Status ShmClient::OnView(const Packet& packet) {
  auto handle = DecodeNumber(packet.body);
  if (!handle.ok()) return handle.status();
  if (owner_.IsBarred(peer_id_)) {
    return Refuse(packet, Status(Code::kFenced, "fenced by the owner"));
  }
  const auto held = holdings_.find(handle.value());
  if (held == holdings_.end()) return Status(Code::kWire, "a view of nothing that was given");
  Await(held->second);
  return SendPacket(socket_, Message::kViewReply, packet.request_id, {});
}

Status ShmClient::OnRelease(const Packet& packet) {
  auto handle = DecodeNumber(packet.body);
  if (!handle.ok()) return handle.status();
  const auto released = holdings_.extract(handle.value());
  if (!released.empty() && released.mapped().is_awaited && --awaited_ == 0) server_.Changed();
  if (owner_.IsBarred(peer_id_) && !HoldsAnyThatCounts()) Leave();
  return Status::Ok();
}

Status ShmClient::OnNotify(const Packet& packet) {
  if (owner_.IsBarred(peer_id_)) {
    return Refuse(packet, Status(Code::kFenced, "fenced by the owner"));
  }
  const Status pushed =
      owner_.notifications.Push({peer_id_, std::string(packet.body.begin(), packet.body.end())});
  if (!pushed.ok()) return Refuse(packet, pushed);
  return SendPacket(socket_, Message::kNotifyReply, packet.request_id, {});
}

Status ShmClient::Refuse(const Packet& packet, const Status& status) {
  return SendPacket(socket_, Message::kError, packet.request_id, EncodeError(status));
}

}  // namespace mooncake
