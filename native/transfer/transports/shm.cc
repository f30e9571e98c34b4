#include "transfer/transports/shm.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <vector>

#include "base/check.h"
#include "transfer/transports/shm_attachment.h"

namespace mooncake {
namespace {

Status SegmentGone(uint64_t id) {
  return Status(Code::kNotFound, "segment " + std::to_string(id) + " was closed by its owner");
}

}  // namespace

Result<std::shared_ptr<ShmTransport>> ShmTransport::Connect(const std::string& name,
                                                            const Hello& hello,
                                                            std::shared_ptr<Loop> loop,
                                                            Deadline deadline) {
  auto socket = ConnectUnix(name);
  if (!socket.ok()) return socket.status();
  std::shared_ptr<ShmTransport> transport(
      new ShmTransport(std::move(socket).value(), std::move(loop)));
  const auto watch = [&] { transport->loop_->Watch(transport->socket_, EPOLLIN, transport); };
  if (!transport->loop_->Run(watch)) return Status(Code::kClosed, "the engine is closed");
  Lock lock(transport->mutex_);
  auto answer = transport->Ask(lock, Message::kHello, Encode(hello), deadline);
  if (answer.ok() && answer.value().type == Message::kHelloReply) return transport;
  transport->EndLocked(Status(Code::kPeerUnreachable, "no greeting on the Unix socket"));
  return answer.ok() ? Status(Code::kWire, "an answer of another type") : answer.status();
}

ShmTransport::ShmTransport(Fd socket, std::shared_ptr<Loop> loop)
    : socket_(std::move(socket)), loop_(std::move(loop)) {}

Result<std::shared_ptr<Attachment>> ShmTransport::Open(uint64_t segment_id, Deadline deadline) {
  Lock lock(mutex_);
  if (!end_.ok()) return end_;
  const uint64_t handle = ++last_handle_;
  ++copies_;  // Bye waits for the mapping that is made here
  uint64_t size_bytes = 0;
  auto mapping = MapSegment(lock, {handle, segment_id, false}, size_bytes, deadline);
  --copies_;
  changed_.notify_all();
  if (!mapping.ok() || !end_.ok()) {
    if (mapping.ok()) mapping.value().Unmap();
    Settle();
    return end_.ok() ? mapping.status() : end_;
  }
  auto attachment = std::make_shared<ShmAttachment>(segment_id, size_bytes, handle,
                                                    std::move(mapping).value(), shared_from_this());
  attachment->is_gone_ = gone_.contains(segment_id);
  attachments_.insert(attachment.get());
  Settle();
  return std::shared_ptr<Attachment>(std::move(attachment));
}

void ShmTransport::End(const Status& reason) {
  Lock lock(mutex_);
  EndLocked(reason);
  changed_.wait(lock, [&] { return copies_ == 0; });
}

void ShmTransport::AppendStatistics(std::vector<PathStatistics>& statistics) const {
  const std::lock_guard lock(mutex_);
  statistics.push_back({.transport = "shm", .state = "up", .connections = is_connected_ ? 1u : 0u});
}

bool ShmTransport::IsEnded() const {
  const std::lock_guard lock(mutex_);
  return !end_.ok();
}

void ShmTransport::OnReady(uint64_t token, uint32_t) {
  Lock lock(mutex_);
  if (!Drain()) loop_->Forget(token);
}

Result<uint8_t*> ShmTransport::Enter(ShmAttachment& attachment, Op op, Deadline deadline) {
  Lock lock(mutex_);
  Drain();
  if (!end_.ok()) return end_;
  if (attachment.is_gone_) return SegmentGone(attachment.segment_id());
  ++copies_;
  ++attachment.copies_;
  const Status mapped = EnsureMapped(lock, attachment, op, deadline);
  if (!mapped.ok()) return LeaveLocked(attachment, mapped);
  return op == Op::kWrite ? attachment.writable_.data() : attachment.readable_.data();
}

Status ShmTransport::Leave(ShmAttachment& attachment, Status status) {
  Lock lock(mutex_);
  Drain();
  return LeaveLocked(attachment, std::move(status));
}

// Ends a copy. What has happened meanwhile outweighs how the copy went.
Status ShmTransport::LeaveLocked(ShmAttachment& attachment, Status status) {
  --copies_;
  --attachment.copies_;
  Settle();
  changed_.notify_all();
  if (!end_.ok()) return end_;
  if (attachment.is_gone_) return SegmentGone(attachment.segment_id());
  return status;
}

// Called by the destructor of an attachment: no copy is under way.
void ShmTransport::Close(ShmAttachment& attachment) {
  const std::lock_guard lock(mutex_);
  attachments_.erase(&attachment);
  ReleaseAttachment(attachment);
}

void ShmTransport::ReleaseAttachment(ShmAttachment& attachment) {
  if (attachment.readable_.data() == nullptr) return;
  attachment.readable_.Unmap();
  attachment.writable_.Unmap();
  const Status told = SendPacket(socket_, Message::kRelease, 0, EncodeNumber(attachment.handle_));
  if (!told.ok()) EndLocked(told);
}

Status ShmTransport::EnsureMapped(Lock& lock, ShmAttachment& attachment, Op op, Deadline deadline) {
  if (op == Op::kRead || attachment.writable_.data() != nullptr) return Status::Ok();
  uint64_t size_bytes = 0;
  auto mapping =
      MapSegment(lock, {attachment.handle_, attachment.segment_id(), true}, size_bytes, deadline);
  if (!mapping.ok()) return mapping.status();
  if (!end_.ok()) return end_;
  if (attachment.writable_.data() == nullptr) attachment.writable_ = std::move(mapping).value();
  return Status::Ok();
}

// Lets go of the lock while it waits and while it maps. The caller counts as a copy, so that the
// owner is not told Bye meanwhile.
Result<Mapping> ShmTransport::MapSegment(Lock& lock, const Map& map, uint64_t& size_bytes,
                                         Deadline deadline) {
  auto answer = Ask(lock, Message::kMap, Encode(map), deadline);
  if (!answer.ok()) return answer.status();
  const Packet& packet = answer.value();
  auto size = DecodeNumber(packet.body);
  if (packet.type != Message::kMapReply || !size.ok() || !packet.passed.valid()) {
    return Status(Code::kWire, "an answer without a memory file");
  }
  size_bytes = size.value();
  lock.unlock();
  auto mapping = Mapping::Map(packet.passed, size_bytes, map.is_writable);
  lock.lock();
  return mapping;
}

Result<Packet> ShmTransport::Ask(Lock& lock, Message type, std::span<const uint8_t> body,
                                 Deadline deadline) {
  const uint64_t id = ++last_request_id_;
  MC_RETURN_IF_ERROR(SendPacket(socket_, type, id, body));
  asked_.insert(id);
  changed_.wait_until(lock, deadline.time(), [&] { return answers_.contains(id) || !end_.ok(); });
  asked_.erase(id);
  auto answer = answers_.extract(id);
  if (answer.empty()) {
    return end_.ok() ? Status(Code::kTimeout, "the owner did not answer in time") : end_;
  }
  if (answer.mapped().type == Message::kError) return DecodeError(answer.mapped().body);
  return std::move(answer.mapped());
}

// Takes in what the owner has said. False once the connection has ended.
bool ShmTransport::Drain() {
  while (is_connected_) {
    auto packet = ReceivePacket(socket_);
    if (!packet.ok()) {
      is_connected_ = false;
      EndLocked(Status(Code::kPeerUnreachable, "the owner of the memory is gone"));
    } else if (!packet.value()) {
      return true;
    } else {
      OnPacket(std::move(*packet.value()));
    }
  }
  return false;
}

void ShmTransport::OnPacket(Packet packet) {
  if (packet.type == Message::kFenced) {
    EndLocked(Status(Code::kFenced, "the owner of this memory has fenced this process"));
  } else if (packet.type == Message::kSegmentGone) {
    OnSegmentGone(packet);
  } else if (asked_.contains(packet.request_id)) {
    const uint64_t id = packet.request_id;
    answers_.insert_or_assign(id, std::move(packet));
    changed_.notify_all();
  }
}

void ShmTransport::OnSegmentGone(const Packet& packet) {
  const auto id = DecodeNumber(packet.body);
  if (!id.ok()) return;
  gone_.insert(id.value());
  for (ShmAttachment* attachment : attachments_) {
    if (attachment->segment_id() == id.value()) attachment->is_gone_ = true;
  }
  Settle();
}

void ShmTransport::EndLocked(const Status& reason) {
  if (!end_.ok()) return;
  end_ = reason;
  is_interrupted_ = true;
  changed_.notify_all();
  Settle();
}

// Gives memory back as soon as no copy is under way in it.
void ShmTransport::Settle() {
  for (ShmAttachment* attachment : attachments_) {
    if (attachment->copies_ == 0 && (attachment->is_gone_ || !end_.ok()))
      ReleaseAttachment(*attachment);
  }
  if (end_.ok() || copies_ > 0 || has_said_bye_) return;
  has_said_bye_ = true;
  // The owner may be gone; then nobody needs to hear it.
  if (SendPacket(socket_, Message::kBye, 0, {}).ok()) shutdown(socket_.get(), SHUT_WR);
}

}  // namespace mooncake
