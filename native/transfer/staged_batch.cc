#include "transfer/staged_batch.h"

#include <algorithm>

#include "base/crc32c.h"
#include "transfer/slicer.h"

namespace mooncake {
namespace {

int FirstDevice(const BufferTable::Footprint& footprint) {
  int first = BufferTable::kHost;
  for (const auto& range : footprint.ranges) first = std::max(first, range.device);
  return first;
}

void Append(std::vector<DeviceCopy>& copies, const DeviceCopy& copy) {
  if (!copies.empty()) {
    DeviceCopy& last = copies.back();
    if (last.device == copy.device && copy.address - last.address == last.length) {
      last.length += copy.length;
      return;
    }
  }
  copies.push_back(copy);
}

}  // namespace

Status StagedBatch::Execute(Attachment& attachment, Op op, std::span<const Piece> pieces,
                            const BatchOptions& options, const BufferTable::Footprint& footprint) {
  auto driver = CudaDriver::Get();
  if (!driver.ok()) return driver.status();
  auto bounce = Bounce::Take(*driver.value(), FirstDevice(footprint));
  if (!bounce.ok()) return bounce.status();
  std::fill(options.checksums.begin(), options.checksums.end(), 0);
  StagedBatch batch(attachment, pieces, options, footprint, *bounce.value());
  Status status = op == Op::kWrite ? batch.Write() : batch.Read();
  Status settled = batch.Settle();
  if (status.ok()) status = std::move(settled);
  const bool is_dirty = op == Op::kWrite && batch.has_moved_;
  return is_dirty ? std::move(status).AsDirty() : status;
}

Status StagedBatch::Write() {
  int half = 0;
  bool is_cut = Cut(half);
  MC_RETURN_IF_ERROR(bounce_.Start(half, Op::kWrite, chunks_[half].copies));
  while (is_cut) {
    const int next = 1 - half;
    is_cut = Cut(next);
    MC_RETURN_IF_ERROR(bounce_.Start(next, Op::kWrite, chunks_[next].copies));
    MC_RETURN_IF_ERROR(bounce_.Wait(half));
    MC_RETURN_IF_ERROR(Move(Op::kWrite, half));
    half = next;
  }
  return Status::Ok();
}

Status StagedBatch::Read() {
  for (int half = 0; Cut(half); half = 1 - half) {
    MC_RETURN_IF_ERROR(bounce_.Wait(half));
    MC_RETURN_IF_ERROR(Move(Op::kRead, half));
    MC_RETURN_IF_ERROR(bounce_.Start(half, Op::kRead, chunks_[half].copies));
  }
  return Status::Ok();
}

// Waits for what is still being copied: nothing is after a batch has returned.
Status StagedBatch::Settle() {
  Status first = bounce_.Wait(0);
  Status second = bounce_.Wait(1);
  return first.ok() ? second : first;
}

// Replaces a half's chunk by the next one. False when nothing is left.
bool StagedBatch::Cut(int half) {
  Chunk& chunk = chunks_[half];
  chunk = {};
  while (at_ < pieces_.size() && chunk.staged_bytes < Bounce::kHalfBytes) {
    const Piece& piece = pieces_[at_];
    Piece part{piece.address + taken_, piece.offset + taken_, piece.length - taken_};
    if (part.length > 0) {
      const int device = footprint_.DeviceOf(part.address);
      if (device == BufferTable::kHost) {
        Add(chunk, part);
      } else {
        part.length = std::min(part.length, Bounce::kHalfBytes - chunk.staged_bytes);
        Stage(half, device, part);
      }
    }
    taken_ += part.length;
    if (taken_ < piece.length) continue;
    ++at_;
    taken_ = 0;
  }
  return !chunk.pieces.empty();
}

void StagedBatch::Stage(int half, int device, const Piece& piece) {
  Chunk& chunk = chunks_[half];
  Append(chunk.copies, {device, piece.address, chunk.staged_bytes, piece.length});
  Add(chunk, {bounce_.address(half) + chunk.staged_bytes, piece.offset, piece.length});
  chunk.staged_bytes += piece.length;
}

// Pieces with checksums stay apart.
void StagedBatch::Add(Chunk& chunk, const Piece& piece) {
  if (options_.checksums.empty()) return AppendJoined(chunk.pieces, piece);
  chunk.pieces.push_back(piece);
  chunk.origins.push_back(at_);
  chunk.checksums.push_back(0);
}

Status StagedBatch::Move(Op op, int half) {
  MC_RETURN_IF_ERROR(options_.CheckTime());
  Chunk& chunk = chunks_[half];
  BatchOptions options = options_;
  options.checksums = chunk.checksums;
  options.barrier = 0;
  MC_RETURN_IF_ERROR(attachment_.Execute(op, chunk.pieces, options));
  has_moved_ = true;
  for (size_t i = 0; i < chunk.checksums.size(); ++i) {
    uint32_t& whole = options_.checksums[chunk.origins[i]];
    whole = Crc32cCombine(whole, chunk.checksums[i], chunk.pieces[i].length);
  }
  return Status::Ok();
}

}  // namespace mooncake
