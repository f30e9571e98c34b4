#include "transfer/transports/shm_attachment.h"

#include <algorithm>
#include <atomic>
#include <vector>

#include "base/crc32c.h"
#include "transfer/transports/stream_copy.h"

namespace mooncake {
namespace {

// A copy of so few bytes is over before the owner could say anything that mattered.
constexpr uint64_t kBriefBytes = 64u << 10;

// Between two of these a copy looks whether it should stop.
constexpr uint64_t kCopyBytes = 1u << 20;

// Batches of so many bytes are copied with the help of others, in parts of so many.
constexpr uint64_t kSharedFrom = 384u << 10;
constexpr uint64_t kSharedBytes = 64u << 10;

// Batches of so many bytes go past the caches.
uint64_t StreamedFrom(Op op, const BatchOptions& options) {
  if (!options.is_cold) return kStreamBytes;
  return op == Op::kWrite ? kColdWriteBytes : kColdReadBytes;
}

// What is copied in one go: a run of whole pieces of a batch, or a cut of one that is too large.
struct Part {
  size_t first = 0;  // of the pieces
  size_t count = 1;
  bool is_cut = false;
  Piece cut = {};
  uint32_t checksum = 0;  // of the cut

  std::span<const Piece> Of(std::span<const Piece> pieces) const {
    return is_cut ? std::span(&cut, 1) : pieces.subspan(first, count);
  }
  // Where the checksums go; nowhere, if the batch has none.
  std::span<uint32_t> Of(std::span<uint32_t> checksums) {
    if (checksums.empty()) return {};
    return is_cut ? std::span(&checksum, 1) : checksums.subspan(first, count);
  }
};

// Appends the pieces from `at` to `end`, in parts of at most `most_bytes` and kWindowPieces each.
void CutUp(std::span<const Piece> pieces, size_t at, size_t end, uint64_t most_bytes,
           std::vector<Part>& parts) {
  while (at < end) {
    const Piece& piece = pieces[at];
    const size_t first = at;
    uint64_t room = most_bytes;
    while (at < end && at - first < kWindowPieces && pieces[at].length <= room) {
      room -= pieces[at++].length;
    }
    if (at > first) {
      parts.push_back({first, at - first});
      continue;
    }
    for (uint64_t from = 0; from < piece.length; from += most_bytes) {
      const uint64_t length = std::min(most_bytes, piece.length - from);
      parts.push_back({at, 1, true, {piece.address + from, piece.offset + from, length}});
    }
    ++at;
  }
}

// Puts the checksums of pieces that were cut together.
void Combine(std::span<const Part> parts, std::span<uint32_t> checksums) {
  if (checksums.empty()) return;
  for (const Part& part : parts) {
    if (!part.is_cut) continue;
    uint32_t& whole = checksums[part.first];
    whole = Crc32cCombine(whole, part.checksum, part.cut.length);
  }
}

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
  std::atomic<uint64_t> moved = 0;
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
                           const BatchOptions& options, std::atomic<uint64_t>& moved) const {
  const uint64_t bytes = TotalBytes(pieces);
  const bool is_large = bytes >= StreamedFrom(op, options);
  CopyTeam& team = *transport_->copy_team_;
  const bool is_shared = bytes >= kSharedFrom && team.helpers() > 0;
  std::fill(options.checksums.begin(), options.checksums.end(), 0);
  const uint64_t part_bytes = is_shared ? kSharedBytes : kCopyBytes;
  const size_t barrier = std::min(options.barrier, pieces.size());
  std::vector<Part> parts;
  CutUp(pieces, 0, barrier, part_bytes, parts);
  const size_t before = parts.size();
  CutUp(pieces, barrier, pieces.size(), part_bytes, parts);
  const auto copy = [&](size_t at) -> Status {
    MC_RETURN_IF_ERROR(CheckStop(options));
    Part& part = parts[at];
    uint64_t part_moved = 0;
    Status status =
        window.Move(op, part.Of(pieces), part.Of(options.checksums), is_large, part_moved);
    transport_->counters_.Moved(op, part_moved);
    moved += part_moved;
    return status;
  };
  if (is_shared) {
    MC_RETURN_IF_ERROR(team.Run(before, copy));
    const auto copy_after = [&](size_t at) { return copy(before + at); };
    MC_RETURN_IF_ERROR(team.Run(parts.size() - before, copy_after));
  } else {
    for (size_t at = 0; at < parts.size(); ++at) MC_RETURN_IF_ERROR(copy(at));
  }
  Combine(parts, options.checksums);
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
