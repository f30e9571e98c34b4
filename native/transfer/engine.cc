#include "transfer/engine.h"

#include "transfer/core.h"
#include "transfer/cuda_driver.h"

namespace mooncake {

RemoteSegment::RemoteSegment(std::shared_ptr<Peer> peer, std::shared_ptr<Attachment> attachment)
    : peer_(std::move(peer)), attachment_(std::move(attachment)) {}
RemoteSegment::~RemoteSegment() = default;

uint64_t RemoteSegment::id() const { return attachment_->segment_id(); }
uint64_t RemoteSegment::size_bytes() const { return attachment_->size_bytes(); }
const std::string& RemoteSegment::endpoint() const { return peer_->endpoint(); }
std::string_view RemoteSegment::transport() const { return attachment_->transport(); }
const std::string& RemoteSegment::reason() const { return attachment_->reason(); }
bool RemoteSegment::is_read_only() const { return attachment_->is_read_only(); }

Result<std::shared_ptr<Engine>> Engine::Create(const EngineOptions& options) {
  auto core = Core::Create(options);
  if (!core.ok()) return core.status();
  return std::make_shared<Engine>(std::move(core).value());
}

Engine::Engine(std::shared_ptr<Core> core) : core_(std::move(core)) {}

Engine::~Engine() {
  Close();
  // Threads that were never joined cannot be destroyed; a forked child keeps what it has of them.
  if (core_->IsForked()) new std::shared_ptr<Core>(std::move(core_));
}

std::string Engine::endpoint() const { return core_->endpoint(); }
uint64_t Engine::peer_id() const { return core_->peer_id(); }
uint64_t Engine::engine_id() const { return core_->engine_id(); }
std::string Engine::host_id() const { return core_->host_id(); }

Result<std::shared_ptr<Segment>> Engine::CreateSegment(uint64_t size_bytes, std::string name) {
  return core_->CreateSegment(size_bytes, std::move(name));
}

Result<std::shared_ptr<Segment>> Engine::Lend(uint64_t address, uint64_t size_bytes,
                                              bool is_read_only, std::string name) {
  return core_->Lend(address, size_bytes, is_read_only, std::move(name));
}

bool Engine::CloseSegment(const Segment& segment, Deadline deadline) {
  return core_->CloseSegment(segment, deadline);
}

Status Engine::RegisterBuffer(uint64_t address, uint64_t size_bytes, Access access) {
  return core_->buffers().Register(address, size_bytes, access);
}

Status Engine::RegisterDeviceBuffer(uint64_t address, uint64_t size_bytes, Access access) {
  auto driver = CudaDriver::Get();
  if (!driver.ok()) return driver.status();
  auto device = driver.value()->DeviceOf(address, size_bytes);
  if (!device.ok()) return device.status();
  return core_->buffers().Register(address, size_bytes, access, device.value());
}

Status Engine::UnregisterBuffer(uint64_t address, uint64_t size_bytes, Access access) {
  if (core_->IsForked()) return Status::Ok();  // batches of the parent's would never end here
  return core_->buffers().Unregister(address, size_bytes, access);
}

Result<std::shared_ptr<RemoteSegment>> Engine::OpenSegment(const std::string& endpoint,
                                                           uint64_t segment_id, Deadline deadline,
                                                           uint64_t engine_id) {
  return core_->OpenSegment(endpoint, {segment_id, ""}, deadline, engine_id);
}

Result<std::shared_ptr<RemoteSegment>> Engine::OpenSegment(const std::string& endpoint,
                                                           const std::string& name,
                                                           Deadline deadline, uint64_t engine_id) {
  return core_->OpenSegment(endpoint, {0, name}, deadline, engine_id);
}

Result<std::shared_ptr<View>> Engine::Map(const std::shared_ptr<RemoteSegment>& remote,
                                          uint64_t offset, uint64_t length, Deadline deadline) {
  return core_->Map(*remote, offset, length, deadline);
}

Status Engine::Execute(Op op, const std::shared_ptr<RemoteSegment>& remote,
                       std::span<const Piece> pieces, const BatchOptions& options,
                       const Note& note) {
  return core_->Execute(op, *remote, pieces, options, note);
}

Result<std::shared_ptr<Transfer>> Engine::Submit(Op op, std::shared_ptr<RemoteSegment> remote,
                                                 std::vector<Piece> pieces,
                                                 const BatchOptions& options, const Note& note) {
  return core_->Submit(op, std::move(remote), std::move(pieces), options, note);
}

Result<std::shared_ptr<PreparedTransfer>> Engine::Prepare(Op op,
                                                          std::shared_ptr<RemoteSegment> remote,
                                                          std::span<const Piece> pieces) {
  return core_->Prepare(op, std::move(remote), pieces);
}

Status Engine::Execute(PreparedTransfer& prepared, const BatchOptions& options, const Note& note) {
  return core_->Execute(prepared, options, note);
}

Result<std::shared_ptr<Transfer>> Engine::Submit(PreparedTransfer& prepared,
                                                 const BatchOptions& options, const Note& note) {
  return core_->Submit(prepared, options, note);
}

Result<std::vector<Notification>> Engine::TakeNotifications(size_t limit) {
  return core_->notifications().Take(limit);
}

Result<int> Engine::NotificationFd() { return core_->notifications().EventFd(); }

std::vector<PathStatistics> Engine::Statistics() const { return core_->Statistics(); }

Result<bool> Engine::Fence(uint64_t peer_id, Deadline deadline) {
  return core_->Fence(peer_id, deadline);
}

Result<uint64_t> Engine::Rotate() { return core_->Rotate(); }

Status Engine::CheckOpen() const { return core_->CheckOpen(); }

void Engine::Close() { core_->Close(); }

}  // namespace mooncake
