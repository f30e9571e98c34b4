#include "transfer/transports/lent_memory.h"

#include <array>

#include "transfer/transports/hash_copy.h"

namespace mooncake {

Result<std::unique_ptr<Window>> LentMemory::Open(std::shared_ptr<const Process> owner,
                                                 uint64_t address, uint64_t size_bytes) {
  std::unique_ptr<Window> memory(new LentMemory(std::move(owner), address));
  std::array<uint8_t, 2> ends;
  const uint64_t here = reinterpret_cast<uint64_t>(ends.data());
  const std::array<Piece, 2> pieces{{{here, 0, 1}, {here + 1, size_bytes - 1, 1}}};
  uint64_t moved = 0;
  MC_RETURN_IF_ERROR(memory->Move(Op::kRead, pieces, {}, false, moved));
  return memory;
}

Status LentMemory::Move(Op op, std::span<const Piece> pieces, std::span<uint32_t> checksums,
                        bool /*is_large*/, uint64_t& moved) const {
  std::array<iovec, kWindowPieces> local;
  std::array<iovec, kWindowPieces> remote;
  size_t count = 0;
  for (const Piece& piece : pieces) {
    if (piece.length == 0) continue;
    local[count] = {reinterpret_cast<void*>(piece.address), piece.length};
    remote[count] = {reinterpret_cast<void*>(address_ + piece.offset), piece.length};
    ++count;
  }
  MC_RETURN_IF_ERROR(
      owner_->Move(op, std::span(local).first(count), std::span(remote).first(count), moved));
  HashPieces(pieces, checksums);
  return Status::Ok();
}

}  // namespace mooncake
