#include "transfer/shm_client.h"

#include <sys/epoll.h>

#include <algorithm>

#include "transfer/shm_server.h"

namespace mooncake {

ShmClient::ShmClient(Fd socket, Fd pidfd, Owner& owner, ShmServer& server)
    : socket_(std::move(socket)), pidfd_(std::move(pidfd)), owner_(owner), server_(server) {}

void ShmClient::Start() {
  socket_token_ = owner_.loop->Watch(socket_, EPOLLIN, shared_from_this());
  pidfd_token_ = owner_.loop->Watch(pidfd_, EPOLLIN, shared_from_this());
}

void ShmClient::OnReady(uint64_t token, uint32_t) {
  if (token == pidfd_token_) {
    Leave();  // the process is dead, and its mappings with it
  } else {
    Drain();
  }
}

void ShmClient::Revoke() {
  const Status told = SendPacket(socket_, Message::kFenced, 0, {});
  if (!told.ok()) Hang();
  if (!HoldsWritable()) Leave();
}

void ShmClient::Withdraw(uint64_t segment_id) {
  const bool is_mapped = std::any_of(mappings_.begin(), mappings_.end(), [&](const auto& entry) {
    return entry.second.segment_id == segment_id;
  });
  if (!is_mapped || !socket_.valid()) return;
  const Status told = SendPacket(socket_, Message::kSegmentGone, 0, EncodeNumber(segment_id));
  if (!told.ok()) Hang();
}

void ShmClient::Leave() {
  if (has_left_) return;
  has_left_ = true;
  Hang();
  owner_.loop->Forget(pidfd_token_);
  server_.Drop(*this);
}

// Closes the connection. What the process has mapped, it may still write.
void ShmClient::Hang() {
  if (!socket_.valid()) return;
  owner_.loop->Forget(socket_token_);
  socket_.Reset();
}

bool ShmClient::HoldsWritable() const {
  return std::any_of(mappings_.begin(), mappings_.end(),
                     [](const auto& entry) { return entry.second.is_writable; });
}

void ShmClient::Drain() {
  while (socket_.valid()) {
    auto packet = ReceivePacket(socket_);
    if (packet.ok() && !packet.value()) return;
    Status status = packet.ok() ? OnPacket(*packet.value()) : packet.status();
    if (status.ok()) continue;
    Hang();
    if (!HoldsWritable()) Leave();
  }
}

Status ShmClient::OnPacket(const Packet& packet) {
  if (peer_id_ == 0) return OnHello(packet);
  switch (packet.type) {
    case Message::kMap:
      return OnMap(packet);
    case Message::kRelease:
      return OnRelease(packet);
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
  if (owner_.barred.contains(peer_id_)) {
    return Refuse(packet, Status(Code::kFenced, "fenced by the owner"));
  }
  const auto segment = owner_.segments.Find(segment_id);
  if (segment == nullptr) return Refuse(packet, owner_.NoSegment(segment_id));
  Mapping& mapping = mappings_.try_emplace(handle, Mapping{segment_id, false}).first->second;
  if (mapping.segment_id != segment_id) return Status(Code::kWire, "a handle used twice");
  mapping.is_writable = mapping.is_writable || is_writable;
  const Fd& file = is_writable ? segment->writable() : segment->read_only();
  return SendPacket(socket_, Message::kMapReply, packet.request_id,
                    EncodeNumber(segment->size_bytes()), &file);
}

Status ShmClient::OnRelease(const Packet& packet) {
  auto handle = DecodeNumber(packet.body);
  if (!handle.ok()) return handle.status();
  mappings_.erase(handle.value());
  if (owner_.barred.contains(peer_id_) && !HoldsWritable()) Leave();
  return Status::Ok();
}

Status ShmClient::Refuse(const Packet& packet, const Status& status) {
  return SendPacket(socket_, Message::kError, packet.request_id, EncodeError(status));
}

}  // namespace mooncake
