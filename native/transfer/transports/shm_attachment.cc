#include "transfer/transports/shm_attachment.h"

#include <algorithm>
#include <atomic>
#include <cstring>

namespace mooncake {
namespace {

// Between two of these a copy looks whether it should stop.
constexpr uint64_t kCopyBytes = 1u << 20;

}  // namespace

ShmAttachment::ShmAttachment(uint64_t segment_id, uint64_t size_bytes, uint64_t handle,
                             Mapping readable, std::shared_ptr<ShmTransport> transport)
    : Attachment(segment_id, size_bytes),
      handle_(handle),
      transport_(std::move(transport)),
      readable_(std::move(readable)) {}

ShmAttachment::~ShmAttachment() { transport_->Close(*this); }

bool ShmAttachment::IsUsable() const {
  const std::lock_guard lock(transport_->mutex_);
  return transport_->end_.ok() && !is_gone_;
}

Status ShmAttachment::Execute(Op op, std::span<const Piece> pieces, const BatchOptions& options) {
  auto segment = transport_->Enter(*this, op, options.deadline);
  if (!segment.ok()) return segment.status();
  Status status = transport_->Leave(*this, Copy(op, segment.value(), pieces, options));
  return op == Op::kWrite ? std::move(status).AsDirty() : status;
}

Status ShmAttachment::Copy(Op op, uint8_t* segment, std::span<const Piece> pieces,
                           const BatchOptions& options) const {
  uint64_t until_check = kCopyBytes;
  for (const Piece& piece : pieces) {
    for (uint64_t done = 0; done < piece.length;) {
      const uint64_t step = std::min(piece.length - done, kCopyBytes);
      void* local = reinterpret_cast<void*>(piece.address + done);
      void* remote = segment + piece.offset + done;
      if (op == Op::kRead) {
        std::memcpy(local, remote, step);
      } else {
        std::memcpy(remote, local, step);
      }
      done += step;
      if (until_check > step) {
        until_check -= step;
        continue;
      }
      until_check = kCopyBytes;
      if (transport_->is_interrupted()) return Status(Code::kClosed, "interrupted");
      MC_RETURN_IF_ERROR(options.CheckTime());
    }
  }
  // What is read or announced after a batch comes after its bytes.
  std::atomic_thread_fence(op == Op::kRead ? std::memory_order_acquire : std::memory_order_release);
  return Status::Ok();
}

}  // namespace mooncake
