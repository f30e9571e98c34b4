#include "transfer/transports/shm.h"

#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <vector>

#include "base/check.h"
#include "base/fork.h"
#include "transfer/transports/lent_memory.h"
#include "transfer/transports/mapping.h"
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
                                                            std::shared_ptr<CopyTeam> copy_team,
                                                            Deadline deadline) {
  auto socket = ConnectUnix(name);
  if (!socket.ok()) return socket.status();
  const auto owner = PeerCredentials(socket.value());
  if (owner.ok() && owner.value().uid != geteuid()) {
    return Status(Code::kUnavailable, "the peer's process is another user's");
  }
  std::shared_ptr<ShmTransport> transport(
      new ShmTransport(std::move(socket).value(), std::move(loop), std::move(copy_team)));
  const auto watch = [&] { transport->loop_->Watch(transport->socket_, EPOLLIN, transport); };
  if (!transport->loop_->Run(watch)) return Status(Code::kClosed, "the engine is closed");
  Lock lock(transport->mutex_);
  auto answer = transport->Ask(lock, Message::kHello, Encode(hello), deadline);
  if (answer.ok() && answer.value().type == Message::kHelloReply) return transport;
  transport->EndLocked(Status(Code::kPeerUnreachable, "no greeting on the Unix socket"));
  return answer.ok() ? Status(Code::kWire, "an answer of another type") : answer.status();
}

ShmTransport::ShmTransport(Fd socket, std::shared_ptr<Loop> loop,
                           std::shared_ptr<CopyTeam> copy_team)
    : fork_count_(ForkCount()),
      socket_(std::move(socket)),
      loop_(std::move(loop)),
      copy_team_(std::move(copy_team)) {}

Result<std::shared_ptr<Attachment>> ShmTransport::Open(uint64_t segment_id, Deadline deadline) {
  Lock lock(mutex_);
  if (!end_.ok()) return end_;
  const uint64_t handle = ++last_handle_;
  ++copies_;  // Bye waits for the window that is opened here
  ++opens_;
  auto given = Obtain(lock, {handle, segment_id, false}, deadline);
  std::shared_ptr<ShmAttachment> attachment;
  if (given.ok()) {
    attachment = Attach(handle, segment_id, std::move(given).value());
  } else {
    Release(handle);  // the owner may have given it
  }
  --copies_;
  if (--opens_ == 0) gone_.clear();
  Settle();
  changed_.notify_all();
  const Status status = end_.ok() ? given.status() : end_;
  lock.unlock();  // an attachment that is dropped here takes it
  if (!status.ok()) return status;
  return std::shared_ptr<Attachment>(std::move(attachment));
}

std::shared_ptr<ShmAttachment> ShmTransport::Attach(uint64_t handle, uint64_t segment_id,
                                                    Given given) {
  const OpenReply segment{segment_id, given.segment.size_bytes, given.segment.is_read_only};
  std::string reason(given.window->reason());
  auto attachment =
      std::make_shared<ShmAttachment>(segment, handle, std::move(given.window), shared_from_this());
  attachment->Explain(std::move(reason));
  attachment->is_gone_ = gone_.contains(segment_id);
  attachments_.insert(attachment.get());
  return attachment;
}

Status ShmTransport::Notify(std::string_view data, const BatchOptions& options) {
  const std::span body(reinterpret_cast<const uint8_t*>(data.data()), data.size());
  Lock lock(mutex_);
  Drain();
  if (!end_.ok()) return end_;
  auto answer = Ask(lock, Message::kNotify, body, {options.deadline, options.cancel});
  if (!answer.ok()) return answer.status();
  const bool is_reply = answer.value().type == Message::kNotifyReply;
  return is_reply ? Status::Ok() : Status(Code::kWire, "an answer of another type");
}

void ShmTransport::End(const Status& reason) {
  Lock lock(mutex_);
  EndLocked(reason);
  changed_.wait(lock, [&] { return copies_ == 0; });
}

void ShmTransport::AppendStatistics(std::vector<PathStatistics>& statistics) const {
  const std::lock_guard lock(mutex_);
  PathStatistics path{.transport = "shm",
                      .state = end_.ok() ? "up" : "gone",
                      .failures = is_connected_ ? 0u : 1u,
                      .connections = is_connected_ ? 1u : 0u};
  counters_.Fill(path);
  statistics.push_back(std::move(path));
}

bool ShmTransport::IsEnded() const {
  const std::lock_guard lock(mutex_);
  return !end_.ok();
}

void ShmTransport::OnReady(uint64_t token, uint32_t) {
  Lock lock(mutex_);
  if (!Drain()) loop_->Forget(token);
}

bool ShmTransport::IsUsable(const ShmAttachment& attachment) {
  const std::lock_guard lock(mutex_);
  Drain();
  return end_.ok() && !attachment.is_gone_;
}

Result<const Window*> ShmTransport::Enter(ShmAttachment& attachment, Op op, Patience patience) {
  Lock lock(mutex_);
  Drain();
  if (!end_.ok()) return end_;
  if (attachment.is_gone_) return SegmentGone(attachment.segment_id());
  ++copies_;
  ++attachment.copies_;
  if (op == Op::kRead) return attachment.readable_.get();
  const Status given = EnsureWritable(lock, attachment, patience);
  if (!given.ok()) return LeaveLocked(attachment, given);
  return attachment.writable_.get();
}

void ShmTransport::Listen() {
  const std::lock_guard lock(mutex_);
  Drain();
}

Status ShmTransport::Leave(ShmAttachment& attachment, Status status) {
  const std::lock_guard lock(mutex_);
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

Result<const Window*> ShmTransport::EnterView(ShmAttachment& attachment, Patience patience) {
  Lock lock(mutex_);
  Drain();
  if (!end_.ok()) return end_;
  if (attachment.is_gone_) return SegmentGone(attachment.segment_id());
  if (attachment.readable_->data() == nullptr) {
    return Status(Code::kUnavailable, "there are no views of memory that its owner lends");
  }
  ++copies_;  // until the owner knows
  ++attachment.copies_;
  ++views_;
  ++attachment.views_;
  const Status status = LeaveLocked(attachment, EnsureViewed(lock, attachment, patience));
  if (status.ok()) return attachment.readable_.get();
  LeaveViewLocked(attachment);
  return status;
}

// Once a segment: the owner then waits for its Release.
Status ShmTransport::EnsureViewed(Lock& lock, ShmAttachment& attachment, Patience patience) {
  if (attachment.is_viewed_) return Status::Ok();
  auto answer = Ask(lock, Message::kView, EncodeNumber(attachment.handle_), patience);
  if (!answer.ok()) return answer.status();
  if (answer.value().type != Message::kViewReply) {
    return Status(Code::kWire, "an answer of another type");
  }
  attachment.is_viewed_ = true;
  return Status::Ok();
}

void ShmTransport::LeaveView(ShmAttachment& attachment) {
  if (IsForked()) return;
  const std::lock_guard lock(mutex_);
  LeaveViewLocked(attachment);
}

void ShmTransport::LeaveViewLocked(ShmAttachment& attachment) {
  --views_;
  --attachment.views_;
  Settle();
}

// In a child of the process that mapped the memory: it has none of it, and the connection is the
// parent's.
bool ShmTransport::IsForked() const { return ForkCount() != fork_count_; }

// Called by the destructor of an attachment: no copy is under way, and no view is left.
void ShmTransport::Close(ShmAttachment& attachment) {
  if (IsForked()) {
    (void)attachment.readable_.release();
    (void)attachment.writable_.release();
    return;
  }
  const std::lock_guard lock(mutex_);
  attachments_.erase(&attachment);
  ReleaseAttachment(attachment);
}

void ShmTransport::ReleaseAttachment(ShmAttachment& attachment) {
  if (attachment.readable_ == nullptr) return;
  attachment.readable_.reset();
  attachment.writable_.reset();
  Release(attachment.handle_);
}

void ShmTransport::Release(uint64_t handle) {
  const Status told = SendPacket(socket_, Message::kRelease, 0, EncodeNumber(handle));
  if (!told.ok()) EndLocked(told);
}

Status ShmTransport::EnsureWritable(Lock& lock, ShmAttachment& attachment, Patience patience) {
  if (attachment.writable_ != nullptr) return Status::Ok();
  auto given = Obtain(lock, {attachment.handle_, attachment.segment_id(), true}, patience);
  if (!given.ok()) return given.status();
  if (!end_.ok()) return end_;
  if (given.value().segment.size_bytes != attachment.size_bytes()) {
    return Status(Code::kWire, "the peer gave other memory than when the segment was opened");
  }
  if (attachment.writable_ == nullptr) attachment.writable_ = std::move(given.value().window);
  return Status::Ok();
}

// Lets go of the lock while it waits and while it maps. The caller counts as a copy, so that the
// owner is not told Bye meanwhile.
Result<ShmTransport::Given> ShmTransport::Obtain(Lock& lock, const Map& map, Patience patience) {
  auto answer = Ask(lock, Message::kMap, Encode(map), patience);
  if (!answer.ok()) return answer.status();
  const Packet& packet = answer.value();
  if (packet.type != Message::kMapReply) return Status(Code::kWire, "an answer of another type");
  auto reply = DecodeMapReply(packet.body);
  if (!reply.ok()) return reply.status();
  lock.unlock();
  auto window = OpenWindow(reply.value(), packet.passed, map.is_writable);
  lock.lock();
  if (!window.ok()) return window.status();
  return Given{reply.value().segment, std::move(window).value()};
}

Result<std::unique_ptr<Window>> ShmTransport::OpenWindow(const MapReply& reply, const Fd& file,
                                                         bool is_writable) {
  const uint64_t size_bytes = reply.segment.size_bytes;
  if (file.valid()) return Mapping::Map(file, size_bytes, is_writable);
  if (reply.address == 0) return Status(Code::kWire, "an answer without memory");
  auto owner = Owner(reply.start_time);
  if (!owner.ok()) return owner.status();
  return LentMemory::Open(std::move(owner).value(), reply.address, size_bytes);
}

Result<std::shared_ptr<Process>> ShmTransport::Owner(uint64_t start_time) {
  const std::lock_guard lock(owner_mutex_);
  if (owner_ != nullptr) return owner_;
  auto owner = Process::Behind(socket_, start_time);
  if (owner.ok()) owner_ = owner.value();
  return owner;
}

Result<Packet> ShmTransport::Ask(Lock& lock, Message type, std::span<const uint8_t> body,
                                 Patience patience) {
  const uint64_t id = ++last_request_id_;
  MC_RETURN_IF_ERROR(SendPacket(socket_, type, id, body));
  asked_.insert(id);
  Status waited;
  while (waited.ok() && !answers_.contains(id) && end_.ok()) {
    changed_.wait_for(lock, std::chrono::milliseconds(patience.PollMillis()));
    waited = patience.Check("waiting for the owner");
  }
  asked_.erase(id);
  auto answer = answers_.extract(id);
  if (answer.empty()) return end_.ok() ? waited : end_;
  if (answer.mapped().type == Message::kError) return DecodeError(answer.mapped().body);
  return std::move(answer.mapped());
}

// Takes in what the owner has said. False once the connection has ended.
bool ShmTransport::Drain() {
  while (is_connected_) {
    if (!HasPacket(socket_)) return true;
    auto packet = ReceivePacket(socket_);
    if (!packet.ok()) {
      is_connected_ = false;
      const bool is_garbage = packet.status().code() == Code::kWire;
      EndLocked(is_garbage ? packet.status()
                           : Status(Code::kPeerUnreachable, "the owner of the memory is gone"));
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
  if (opens_ > 0) gone_.insert(id.value());
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

// Gives memory back as soon as no copy is under way in it and nobody views it.
void ShmTransport::Settle() {
  for (ShmAttachment* attachment : attachments_) {
    if (attachment->copies_ > 0 || (!attachment->is_gone_ && end_.ok())) continue;
    attachment->writable_.reset();
    if (attachment->views_ == 0) ReleaseAttachment(*attachment);
  }
  if (end_.ok() || copies_ > 0 || views_ > 0 || has_said_bye_) return;
  has_said_bye_ = true;
  // The owner may be gone; then nobody needs to hear it.
  if (SendPacket(socket_, Message::kBye, 0, {}).ok()) shutdown(socket_.get(), SHUT_WR);
}

}  // namespace mooncake
