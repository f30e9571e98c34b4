#include "transfer/transports/shm_attachment.h"

#include <algorithm>
#include <atomic>

#include "transfer/transports/stream_copy.h"

namespace mooncake {
namespace {

// A copy of so few bytes is over before the owner could say anything that mattered.
constexpr uint64_t kBriefBytes = 64u << 10;

// Between two of these a copy looks whether it should stop.
constexpr uint64_t kCopyBytes = 1u << 20;

// Batches of so many bytes go past the caches.
uint64_t StreamedFrom(Op op, const BatchOptions& options) {
  if (!options.is_cold) return kStreamBytes;
  return op == Op::kWrite ? kColdWriteBytes : kColdReadBytes;
}

// Cuts a batch into parts of at most kCopyBytes and kWindowPieces: runs of whole pieces, and
// pieces that are larger by themselves.
class Cutter {
 public:
  struct Part {
    std::span<const Piece> pieces;
    size_t first = 0;  // of them, in the batch
  };

  explicit Cutter(std::span<const Piece> pieces) : pieces_(pieces) {}

  // Without pieces once all was given.
  Part Next() {
    const size_t first = at_;
    if (at_ == pieces_.size()) return {};
    if (pieces_[at_].length > kCopyBytes) return {{&cut_, Cut()}, first};
    uint64_t room = kCopyBytes;
    while (at_ < pieces_.size() && at_ - first < kWindowPieces && pieces_[at_].length <= room) {
      room -= pieces_[at_++].length;
    }
    return {pieces_.subspan(first, at_ - first), first};
  }

 private:
  // The next part of a piece that is too large: one.
  size_t Cut() {
    const Piece& piece = pieces_[at_];
    const uint64_t length = std::min(kCopyBytes, piece.length - taken_);
    cut_ = {piece.address + taken_, piece.offset + taken_, length};
    taken_ += length;
    if (taken_ == piece.length) {
      ++at_;
      taken_ = 0;
    }
    return 1;
  }

  std::span<const Piece> pieces_;
  size_t at_ = 0;
  uint64_t taken_ = 0;  // bytes of pieces_[at_]
  Piece cut_;
};

}  // namespace

ShmAttachment::ShmAttachment(const OpenReply& segment, uint64_t handle,
                             std::unique_ptr<Window> readable,
                             std::shared_ptr<ShmTransport> transport)
    : Attachment(segment),
      handle_(handle),
      transport_(std::move(transport)),
      readable_(std::move(readable)) {}

ShmAttachment::~ShmAttachment() { transport_->Close(*this); }

bool ShmAttachment::IsUsable() const { return transport_->IsUsable(*this); }

Status ShmAttachment::Execute(Op op, std::span<const Piece> pieces, const BatchOptions& options) {
  const auto window = transport_->Enter(*this, op, {options.deadline, options.cancel});
  if (!window.ok()) return window.status();
  ShmCounters& counters = transport_->counters_;
  const uint64_t bytes = TotalBytes(pieces);
  const double start_s = counters.Start(bytes);
  uint64_t moved = 0;
  Status status = Copy(op, *window.value(), pieces, options, moved);
  counters.End(bytes, moved, start_s);
  if (bytes > kBriefBytes || !status.ok()) transport_->Listen();
  status = transport_->Leave(*this, std::move(status));
  return op == Op::kWrite && moved > 0 ? std::move(status).AsDirty() : status;
}

Result<std::shared_ptr<View>> ShmAttachment::Map(uint64_t offset, uint64_t length,
                                                 Patience patience) {
  const auto window = transport_->EnterView(*this, patience);
  if (!window.ok()) return window.status();
  const auto leave = [self = shared_from_this()](const Window*) {
    self->transport_->LeaveView(*self);
  };
  const std::shared_ptr<const Window> pin(window.value(), leave);
  return std::make_shared<View>(pin->data() + offset, length, pin);
}

Status ShmAttachment::Notify(std::string_view data, const BatchOptions& options) {
  return transport_->Notify(data, options);
}

Status ShmAttachment::Copy(Op op, const Window& window, std::span<const Piece> pieces,
                           const BatchOptions& options, uint64_t& moved) const {
  const bool is_large = TotalBytes(pieces) >= StreamedFrom(op, options);
  const bool is_hashed = !options.checksums.empty();
  std::fill(options.checksums.begin(), options.checksums.end(), 0);
  Cutter cutter(pieces);
  for (auto part = cutter.Next(); !part.pieces.empty(); part = cutter.Next()) {
    MC_RETURN_IF_ERROR(CheckStop(options));
    const uint64_t before = moved;
    const auto checksums =
        options.checksums.subspan(is_hashed ? part.first : 0, is_hashed ? part.pieces.size() : 0);
    const Status status = window.Move(op, part.pieces, checksums, is_large, moved);
    transport_->counters_.Moved(op, moved - before);
    MC_RETURN_IF_ERROR(status);
  }
  // What is read or announced after a batch comes after its bytes.
  std::atomic_thread_fence(op == Op::kRead ? std::memory_order_acquire : std::memory_order_release);
  return Status::Ok();
}

Status ShmAttachment::CheckStop(const BatchOptions& options) const {
  if (transport_->is_interrupted() || is_gone_.load(std::memory_order_relaxed)) {
    return Status(Code::kClosed, "interrupted");  // Leave knows why
  }
  return options.CheckTime();
}

}  // namespace mooncake
