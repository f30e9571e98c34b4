// StagedBatch: a batch some of whose local memory is on GPUs, over any transport.
//
// It is cut into chunks that fit a half of a Bounce. Of a write, chunk i + 1 is copied from the GPU
// while chunk i is on its way; of a read, chunk i is copied to the GPU while chunk i + 1 is. Pieces
// in host memory go along, uncopied.
//
// Thread safety: one thread. The pieces and the memory under them are the caller's.
#pragma once

#include <array>
#include <span>
#include <vector>

#include "base/status.h"
#include "transfer/bounce.h"
#include "transfer/buffers.h"
#include "transfer/transports/transport.h"
#include "transfer/types.h"

namespace mooncake {

class StagedBatch {
 public:
  // As Attachment::Execute; besides, kSystem and kOutOfSpace: the driver refused.
  // REQUIRES: `footprint` is of these pieces, and is_on_device().
  static Status Execute(Attachment& attachment, Op op, std::span<const Piece> pieces,
                        const BatchOptions& options, const BufferTable::Footprint& footprint);

 private:
  struct Chunk {
    std::vector<Piece> pieces;
    std::vector<size_t> origins;      // with checksums: which piece of the batch each is of
    std::vector<uint32_t> checksums;  // likewise
    std::vector<DeviceCopy> copies;
    uint64_t staged_bytes = 0;
  };

  StagedBatch(Attachment& attachment, std::span<const Piece> pieces, const BatchOptions& options,
              const BufferTable::Footprint& footprint, Bounce& bounce)
      : attachment_(attachment),
        pieces_(pieces),
        options_(options),
        footprint_(footprint),
        bounce_(bounce) {}

  Status Write();
  Status Read();
  bool Cut(int half);
  void Stage(int half, int device, const Piece& piece);
  void Add(Chunk& chunk, const Piece& piece);
  Status Move(Op op, int half);
  Status Settle();

  Attachment& attachment_;
  const std::span<const Piece> pieces_;
  const BatchOptions& options_;
  const BufferTable::Footprint& footprint_;
  Bounce& bounce_;

  size_t at_ = 0;
  uint64_t taken_ = 0;  // bytes of pieces_[at_] that are in earlier chunks
  std::array<Chunk, 2> chunks_;
  bool has_moved_ = false;  // a chunk
};

}  // namespace mooncake
