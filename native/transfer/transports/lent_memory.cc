#include "transfer/transports/lent_memory.h"

#include <array>

namespace mooncake {

Result<std::unique_ptr<Window>> LentMemory::Open(std::shared_ptr<const Process> owner,
                                                 uint64_t address, uint64_t size_bytes) {
  std::unique_ptr<Window> memory(new LentMemory(std::move(owner), address));
  std::array<uint8_t, 2> ends;
  const uint64_t here = reinterpret_cast<uint64_t>(ends.data());
  const std::array<Piece, 2> pieces{{{here, 0, 1}, {here + 1, size_bytes - 1, 1}}};
  uint64_t moved = 0;
  MC_RETURN_IF_ERROR(memory->Move(Op::kRead, pieces, false, moved));
  return memory;
}

Status LentMemory::Move(Op op, std::span<const Piece> pieces, bool /*is_large*/,
                        uint64_t& moved) const {
  std::array<iovec, kWindowPieces> local;
  std::array<iovec, kWindowPieces> remote;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    local[i] = {reinterpret_cast<void*>(piece.address), piece.length};
    remote[i] = {reinterpret_cast<void*>(address_ + piece.offset), piece.length};
  }
  return owner_->Move(op, std::span(local).first(pieces.size()),
                      std::span(remote).first(pieces.size()), moved);
}

}  // namespace mooncake
