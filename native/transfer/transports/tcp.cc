#include "transfer/transports/tcp.h"

#include <algorithm>

namespace mooncake {
namespace {

constexpr size_t kIdleLanes = 16;  // kept open for the next batches
constexpr double kExplainSeconds = 1.0;

class TcpAttachment : public Attachment {
 public:
  TcpAttachment(const OpenReply& segment, std::shared_ptr<TcpTransport> transport)
      : Attachment(segment), transport_(std::move(transport)) {}

  std::string_view transport() const override { return "tcp"; }
  bool IsUsable() const override { return !transport_->IsEnded(); }
  Status Execute(Op op, std::span<const Piece> pieces, const BatchOptions& options) override {
    return transport_->Execute(op, segment_id(), pieces, options);
  }
  Status Notify(std::string_view data, const BatchOptions& options) override {
    return transport_->Notify(data, options);
  }

 private:
  const std::shared_ptr<TcpTransport> transport_;
};

// Answers of a living peer leave a connection in order only when it was asked one thing.
bool IsAnswer(const Status& status) {
  return status.ok() || status.code() == Code::kNotFound || status.code() == Code::kNotNotified;
}

}  // namespace

TcpTransport::TcpTransport(Address address, const Hello& hello, std::unique_ptr<TcpLane> lane)
    : address_(std::move(address)), hello_(hello) {
  idle_.push_back(std::move(lane));
}

TcpTransport::~TcpTransport() = default;

Result<std::shared_ptr<Attachment>> TcpTransport::Open(uint64_t segment_id, Deadline deadline) {
  auto segment = Find({segment_id, ""}, deadline);
  if (!segment.ok()) return segment.status();
  return std::shared_ptr<Attachment>(
      std::make_shared<TcpAttachment>(segment.value(), shared_from_this()));
}

Result<OpenReply> TcpTransport::Find(const SegmentRef& ref, Deadline deadline) {
  auto lane = Take(deadline);
  if (!lane.ok()) return lane.status();
  auto segment = lane.value()->Open(ref, deadline);
  Return(std::move(lane).value(), IsAnswer(segment.status()));
  if (!segment.ok()) return Explain(segment.status(), deadline);
  return segment;
}

Status TcpTransport::Execute(Op op, uint64_t segment_id, std::span<const Piece> pieces,
                             const BatchOptions& options) {
  const Deadline deadline = options.deadline;
  auto lane = Take(deadline);
  if (!lane.ok()) return lane.status();
  Status status = lane.value()->Execute(op, segment_id, pieces, options);
  Return(std::move(lane).value(), status.ok());
  status = Explain(std::move(status), deadline);
  return op == Op::kWrite ? std::move(status).AsDirty() : status;
}

Status TcpTransport::Notify(std::string_view data, const BatchOptions& options) {
  auto lane = Take(options.deadline);
  if (!lane.ok()) return lane.status();
  const Status status = lane.value()->Notify(data, options.deadline);
  Return(std::move(lane).value(), IsAnswer(status));
  return Explain(status, options.deadline);
}

void TcpTransport::End(const Status& reason) {
  std::unique_lock lock(mutex_);
  if (end_.ok()) end_ = reason;
  idle_.clear();
  for (const TcpLane* lane : busy_) lane->Interrupt();
  returned_.wait(lock, [&] { return busy_.empty(); });
}

bool TcpTransport::IsEnded() const {
  const std::lock_guard lock(mutex_);
  return !end_.ok();
}

void TcpTransport::AppendStatistics(std::vector<PathStatistics>& statistics) const {
  const std::lock_guard lock(mutex_);
  statistics.push_back({.transport = "tcp",
                        .remote = address_.ToString(),
                        .state = "up",
                        .connections = idle_.size() + busy_.size()});
}

bool TcpTransport::IsAlive() const {
  const std::lock_guard lock(mutex_);
  return end_.ok() && (idle_.empty() || idle_.back()->IsQuiet());
}

// An idle lane that is still good, or a new one.
Result<std::unique_ptr<TcpLane>> TcpTransport::Take(Deadline deadline) {
  {
    const std::lock_guard lock(mutex_);
    if (!end_.ok()) return end_;
    if (auto lane = PopIdle()) {
      busy_.insert(lane.get());
      return lane;
    }
  }
  auto lane = Connect(deadline);
  const std::lock_guard lock(mutex_);
  if (!end_.ok()) return end_;
  if (lane.ok()) busy_.insert(lane.value().get());
  return lane;
}

std::unique_ptr<TcpLane> TcpTransport::PopIdle() {
  while (!idle_.empty()) {
    std::unique_ptr<TcpLane> lane = std::move(idle_.back());
    idle_.pop_back();
    if (lane->IsQuiet()) return lane;
  }
  return nullptr;
}

Result<std::unique_ptr<TcpLane>> TcpTransport::Connect(Deadline deadline) {
  auto greeted = TcpLane::Connect(address_, hello_, deadline);
  if (greeted.ok()) return std::move(greeted.value().lane);
  const Status& status = greeted.status();
  if (status.code() == Code::kFenced) End(status);
  if (status.code() != Code::kWrongPeer) return status;
  return Status(Code::kPeerUnreachable,
                address_.ToString() + ": the engine that was here is gone: " + status.message());
}

void TcpTransport::Return(std::unique_ptr<TcpLane> lane, bool is_good) {
  const std::lock_guard lock(mutex_);
  busy_.erase(lane.get());
  if (is_good && end_.ok() && idle_.size() < kIdleLanes) idle_.push_back(std::move(lane));
  returned_.notify_all();
}

// A connection that breaks does not say why. The peer does, to one who asks again.
Status TcpTransport::Explain(Status status, Deadline deadline) {
  if (status.ok()) return status;
  {
    const std::lock_guard lock(mutex_);
    if (!end_.ok()) return end_;
  }
  if (status.code() != Code::kPeerUnreachable) return status;
  auto lane = Connect(Deadline::After(std::min(kExplainSeconds, deadline.seconds_left())));
  if (!lane.ok() && lane.status().code() == Code::kFenced) return lane.status();
  return Status(status.code(), address_.ToString() + ": " + status.message());
}

}  // namespace mooncake
