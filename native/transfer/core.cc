#include "transfer/core.h"

#include <unistd.h>

#include <algorithm>
#include <string>

#include "base/fork.h"
#include "base/random.h"
#include "transfer/carry.h"
#include "transfer/host_id.h"
#include "transfer/slicer.h"

namespace mooncake {
namespace {

// How long an engine that closes waits for peers to let go of memory that it lent.
constexpr double kCloseSeconds = 1.0;

constexpr int kCopyThreadsMax = 64;

Status CheckRef(const SegmentRef& ref) {
  if (ref.id == 0 && ref.name.empty()) return Status(Code::kNotFound, "segment 0 is none");
  if (ref.name.size() <= kSegmentNameBytes) return Status::Ok();
  return Status(Code::kNotFound,
                "no segment has a name of " + std::to_string(ref.name.size()) + " bytes");
}

// What own batches may do with it.
Access LocalAccess(const Segment& segment) {
  return segment.is_read_only() ? Access::kSource : Access::kBoth;
}

Status CheckOptions(const EngineOptions& options) {
  if (options.io_threads < 1) {
    return Status(Code::kInvalidArgument,
                  "io_threads is " + std::to_string(options.io_threads) + "; at least 1 is needed");
  }
  if (options.copy_threads < 0 || options.copy_threads > kCopyThreadsMax) {
    return Status(Code::kInvalidArgument, "copy_threads is " +
                                              std::to_string(options.copy_threads) + "; 0 to " +
                                              std::to_string(kCopyThreadsMax) + " are possible");
  }
  if (options.slice_bytes > 0) return Status::Ok();
  return Status(Code::kInvalidArgument, "slice_bytes is 0; at least 1 is needed");
}

std::vector<std::string> LocationsOf(const EngineOptions& options) {
  std::vector<std::string> locations;
  for (const auto& [location, addresses] : options.preferred) locations.push_back(location);
  return locations;
}

}  // namespace

Core::Core(const EngineOptions& options)
    : options_(options),
      process_(getpid()),
      fork_count_(ForkCount()),
      buffers_(LocationsOf(options)),
      io_pool_(std::make_shared<IoPool>(options.io_threads, &CarryGroup)),
      copy_team_(std::make_shared<CopyTeam>(
          options.same_host == SameHost::kShm ? options.copy_threads : 0)),
      peer_id_(RandomId()) {}

Result<std::shared_ptr<Core>> Core::Create(const EngineOptions& options) {
  MC_RETURN_IF_ERROR(CheckOptions(options));
  std::shared_ptr<Core> core(new Core(options));
  auto tcp_server = TcpServer::Create(options, core->owner_);
  if (!tcp_server.ok()) return tcp_server.status();
  auto shm_server = ShmServer::Create(core->owner_);
  if (!shm_server.ok()) return shm_server.status();
  auto strangers = Strangers::Create(options.hello_s);
  if (!strangers.ok()) return strangers.status();
  auto loop = Loop::Create();
  if (!loop.ok()) return loop.status();
  core->tcp_server_ = std::move(tcp_server).value();
  core->shm_server_ = std::move(shm_server).value();
  core->owner_.strangers = std::move(strangers).value();
  core->owner_.loop = std::move(loop).value();
  const bool is_shm = options.same_host == SameHost::kShm;
  core->owner_.greeting = {RandomId(), ReadHostId(), is_shm ? core->shm_server_->name() : "",
                           core->tcp_server_->endpoints()};
  Status started;
  core->owner_.loop->Run([&] {
    core->owner_.strangers->Start(*core->owner_.loop);
    core->shm_server_->Start();
    started = core->tcp_server_->Start(options.serve_threads);
  });
  if (!started.ok()) return started;
  return core;
}

uint64_t Core::peer_id() const {
  const std::lock_guard lock(mutex_);
  return peer_id_;
}

bool Core::IsForked() const { return ForkCount() != fork_count_; }

Status Core::CheckOpen() const {
  if (IsForked()) {
    return Status(Code::kClosed, "the engine belongs to process " + std::to_string(process_) +
                                     ", of which this is a fork; make one here");
  }
  return is_closed_ ? Status(Code::kClosed, "the engine is closed") : Status::Ok();
}

Result<std::shared_ptr<Segment>> Core::CreateSegment(uint64_t size_bytes, std::string name) {
  MC_RETURN_IF_ERROR(CheckOpen());
  return Add(Segment::Create(size_bytes, std::move(name)));
}

Result<std::shared_ptr<Segment>> Core::Lend(uint64_t address, uint64_t size_bytes,
                                            bool is_read_only, std::string name) {
  MC_RETURN_IF_ERROR(CheckOpen());
  return Add(Segment::Lend(address, size_bytes, is_read_only, std::move(name)));
}

// Lets own batches use a segment, and peers reach it.
Result<std::shared_ptr<Segment>> Core::Add(Result<std::shared_ptr<Segment>> made) {
  if (!made.ok()) return made;
  const Segment& segment = *made.value();
  const uint64_t address = segment.address();
  MC_RETURN_IF_ERROR(buffers_.Register(address, segment.size_bytes(), LocalAccess(segment)));
  const Status added = owner_.segments.Add(made.value());
  if (added.ok()) return made;
  MC_RETURN_IF_ERROR(buffers_.Unregister(address, segment.size_bytes(), LocalAccess(segment)));
  return added;
}

bool Core::CloseSegment(const Segment& segment, Deadline deadline) {
  if (IsForked()) return false;
  {
    const Segment::Use closing(segment.shared_from_this());  // who closes it again waits for this
    if (owner_.segments.Remove(segment.id())) Withdraw(segment);
  }
  return !segment.is_lent() || segment.WaitUntilUnused(deadline);
}

void Core::Withdraw(const Segment& segment) {
  owner_.loop->Run([&] {
    shm_server_->Withdraw(segment.id());
    if (segment.is_lent()) tcp_server_->Withdraw(segment.id());
  });
  const Status status =
      buffers_.Unregister(segment.address(), segment.size_bytes(), LocalAccess(segment));
  MC_CHECK(status.ok(), "%s", status.message().c_str());
}

// Peers may be reading memory that is lent until they have heard that it no longer is.
void Core::WithdrawAll() {
  const Deadline deadline = Deadline::After(kCloseSeconds);
  for (const auto& segment : owner_.segments.All()) {
    if (segment->is_lent()) CloseSegment(*segment, deadline);
  }
}

Result<std::shared_ptr<RemoteSegment>> Core::OpenSegment(const std::string& endpoint,
                                                         const SegmentRef& ref, Deadline deadline,
                                                         uint64_t engine_id) {
  MC_RETURN_IF_ERROR(CheckRef(ref));
  for (;;) {
    MC_RETURN_IF_ERROR(CheckOpen());
    auto found = FindPeer(endpoint, engine_id, deadline);
    if (!found.ok()) return found.status();
    const auto& [peer, is_new] = found.value();
    auto attachment = peer->Open(ref, deadline);
    if (attachment.ok())
      return std::make_shared<RemoteSegment>(peer, std::move(attachment).value());
    // A peer from before may be another process by now; a new connection knows.
    const bool is_stale = !is_new && attachment.status().code() == Code::kPeerUnreachable;
    if (attachment.status().code() == Code::kPeerUnreachable) ForgetPeer(peer);
    if (!is_stale) return attachment.status();
  }
}

Result<Core::Found> Core::FindPeer(const std::string& endpoint, uint64_t engine_id,
                                   Deadline deadline) {
  Peer::Self self{0, host_id(), owner_.loop, copy_team_, ledger_, options_, nullptr};
  std::shared_ptr<Peer> other;  // whom this engine knows there, but who is not asked for
  {
    const std::lock_guard lock(mutex_);
    const auto found = peers_.find(endpoint);
    if (found != peers_.end()) {
      if (found->second->Is(engine_id)) return Found{found->second, false};
      other = found->second;
    }
    self.peer_id = peer_id_;
    self.ending = ending_;
  }
  auto peer = Peer::Connect(endpoint, self, engine_id, deadline);
  if (peer.status().code() == Code::kCancelled) {
    MC_RETURN_IF_ERROR(CheckOpen());
    return Status(Code::kFenced, "the peer id was rotated meanwhile");
  }
  if (!peer.ok()) return peer.status();
  if (other != nullptr) ForgetPeer(other);
  return AddPeer(std::move(peer).value());
}

Result<Core::Found> Core::AddPeer(std::shared_ptr<Peer> peer) {
  const std::lock_guard lock(mutex_);
  if (is_closed_) return Status(Code::kClosed, "the engine is closed");
  if (peer->own_peer_id() != peer_id_) {
    return Status(Code::kFenced, "the peer id was rotated meanwhile");
  }
  SweepPeers();
  const auto [entry, is_new] = peers_.try_emplace(peer->endpoint(), peer);
  return Found{entry->second, is_new};
}

void Core::ForgetPeer(const std::shared_ptr<Peer>& peer) {
  const std::lock_guard lock(mutex_);
  const auto found = peers_.find(peer->endpoint());
  if (found == peers_.end() || found->second != peer) return;
  retired_.push_back(peer);
  peers_.erase(found);
}

// Lets go of the connections to processes that are gone.
void Core::SweepPeers() {
  SweepRetired();
  std::erase_if(peers_, [](const auto& entry) {
    return entry.second.use_count() == 1 && !entry.second->IsAlive();
  });
}

void Core::SweepRetired() {
  std::erase_if(retired_, [](const auto& peer) { return peer.expired(); });
}

// All peers, and those retired before, which may have been ended already.
std::vector<std::shared_ptr<Peer>> Core::TakePeers() {
  SweepRetired();
  for (const auto& [endpoint, peer] : peers_) retired_.push_back(peer);
  std::vector<std::shared_ptr<Peer>> taken;
  for (auto& weak : retired_) {
    if (auto peer = weak.lock()) taken.push_back(std::move(peer));
  }
  peers_.clear();
  return taken;
}

// What can be said of a batch before its local memory is looked at.
Status Core::Admit(Op op, const RemoteSegment& remote, std::span<const Piece> pieces,
                   size_t checksum_count, const Note& note) const {
  MC_RETURN_IF_ERROR(CheckOpen());
  if (checksum_count != 0 && checksum_count != pieces.size()) {
    return Status(
        Code::kInvalidArgument,
        std::to_string(checksum_count) + " checksums for " +
            (pieces.empty() ? "a batch that has none"
                            : std::to_string(pieces.size()) + " pieces; one for each is right"));
  }
  if (op == Op::kWrite && remote.is_read_only()) return ReadOnly(remote.id());
  const uint64_t size_bytes = remote.size_bytes();
  for (const Piece& piece : pieces) {
    if (piece.offset <= size_bytes && piece.length <= size_bytes - piece.offset) continue;
    return Status(Code::kInvalidArgument, std::to_string(piece.length) + " bytes at offset " +
                                              std::to_string(piece.offset) +
                                              " lie outside the remote segment of " +
                                              std::to_string(size_bytes) + " bytes");
  }
  if (!note || note->size() <= kNotificationBytes) return Status::Ok();
  return Status(Code::kInvalidArgument, "a notification of " + std::to_string(note->size()) +
                                            " bytes; at most " +
                                            std::to_string(kNotificationBytes) + " are possible");
}

Result<std::shared_ptr<View>> Core::Map(const RemoteSegment& remote, uint64_t offset,
                                        uint64_t length, Deadline deadline) {
  const Piece range{0, offset, length};
  MC_RETURN_IF_ERROR(Admit(Op::kRead, remote, {&range, 1}, 0, {}));
  return remote.attachment().Map(offset, length, deadline);
}

Status Core::Execute(Op op, const RemoteSegment& remote, std::span<const Piece> pieces,
                     const BatchOptions& options, const Note& note) {
  MC_RETURN_IF_ERROR(Admit(op, remote, pieces, options.checksums.size(), note));
  const auto claim = buffers_.Use(op, pieces);
  if (!claim.ok()) return claim.status();
  return Carry(op, remote, pieces, claim.value().footprint(), options, note);
}

Result<std::shared_ptr<Transfer>> Core::Submit(Op op, std::shared_ptr<RemoteSegment> remote,
                                               std::vector<Piece> pieces,
                                               const BatchOptions& options, const Note& note) {
  MC_RETURN_IF_ERROR(Admit(op, *remote, pieces, options.checksums.size(), note));
  auto claim = buffers_.Use(op, pieces);
  if (!claim.ok()) return claim.status();
  const uint64_t size_bytes = TotalBytes(pieces);
  return Submit({op, std::move(remote),
                 std::make_shared<const std::vector<Piece>>(std::move(pieces)), size_bytes, options,
                 note, std::move(claim).value()});
}

Result<std::shared_ptr<PreparedTransfer>> Core::Prepare(Op op,
                                                        std::shared_ptr<RemoteSegment> remote,
                                                        std::span<const Piece> pieces) {
  MC_RETURN_IF_ERROR(Admit(op, *remote, pieces, 0, {}));
  const auto claim = buffers_.Use(op, pieces);
  if (!claim.ok()) return claim.status();
  return std::make_shared<PreparedTransfer>(op, std::move(remote), Joined(pieces));
}

Status Core::Execute(PreparedTransfer& prepared, const BatchOptions& options, const Note& note) {
  MC_RETURN_IF_ERROR(Admit(prepared.op(), *prepared.remote(), {}, options.checksums.size(), note));
  const auto claim = prepared.Use(buffers_);
  if (!claim.ok()) return claim.status();
  return Carry(prepared.op(), *prepared.remote(), *prepared.pieces(), claim.value().footprint(),
               options, note);
}

Result<std::shared_ptr<Transfer>> Core::Submit(PreparedTransfer& prepared,
                                               const BatchOptions& options, const Note& note) {
  MC_RETURN_IF_ERROR(Admit(prepared.op(), *prepared.remote(), {}, options.checksums.size(), note));
  auto claim = prepared.Use(buffers_);
  if (!claim.ok()) return claim.status();
  return Submit({prepared.op(), prepared.remote(), prepared.pieces(), prepared.size_bytes(),
                 options, note, std::move(claim).value()});
}

Result<std::shared_ptr<Transfer>> Core::Submit(SubmittedBatch batch) {
  auto transfer = std::make_shared<Transfer>(io_pool_);
  batch.transfer = transfer;
  batch.options.cancel = &transfer->cancel_flag();
  MC_RETURN_IF_ERROR(io_pool_->Submit(std::move(batch)));
  return transfer;
}

std::vector<PathStatistics> Core::Statistics() {
  std::vector<std::shared_ptr<Peer>> peers;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [endpoint, peer] : peers_) peers.push_back(peer);
    for (const auto& weak : retired_) {
      if (auto peer = weak.lock()) peers.push_back(std::move(peer));
    }
  }
  std::vector<PathStatistics> live;
  for (const auto& peer : peers) {
    for (PathStatistics& path : peer->Statistics()) live.push_back(std::move(path));
  }
  return ledger_->Sum(std::move(live));
}

Result<bool> Core::Fence(uint64_t peer_id, Deadline deadline) {
  MC_RETURN_IF_ERROR(CheckOpen());
  if (peer_id == 0) return Status(Code::kInvalidArgument, "peer id 0 names nobody");
  const bool is_barred = owner_.loop->Run([&] {
    owner_.Bar(peer_id);
    tcp_server_->CloseOf(peer_id);
    shm_server_->Revoke(peer_id);
  });
  if (!is_barred) return Status(Code::kClosed, "the engine is closed");
  return shm_server_->WaitUntilHarmless(peer_id, deadline);
}

Result<uint64_t> Core::Rotate() {
  uint64_t fresh;
  std::vector<std::shared_ptr<Peer>> peers;
  {
    const std::lock_guard lock(mutex_);
    MC_RETURN_IF_ERROR(CheckOpen());
    fresh = peer_id_ = RandomId();
    ending_->Set();
    ending_ = std::make_shared<CancelFlag>();
    peers = TakePeers();
  }
  for (const auto& peer : peers) peer->End(Status(Code::kFenced, "the peer id was rotated"));
  return fresh;
}

void Core::Close() {
  if (IsForked()) return;  // to wait for threads that do not exist would never end
  std::vector<std::shared_ptr<Peer>> peers;
  {
    const std::lock_guard lock(mutex_);
    if (is_closed_.exchange(true)) return;
    ending_->Set();
    peers = TakePeers();
  }
  for (const auto& peer : peers) peer->End(Status(Code::kClosed, "the engine was closed"));
  io_pool_->Stop();
  copy_team_->Stop();
  owner_.notifications.Close();
  if (owner_.loop == nullptr) return;  // it was never opened
  WithdrawAll();
  owner_.loop->Run([&] {
    tcp_server_->Stop();
    shm_server_->Stop();
  });
  owner_.loop->Stop();
  for (const auto& segment : owner_.segments.All()) owner_.segments.Remove(segment->id());
}

}  // namespace mooncake
