#include "transfer/transports/mapping.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <cstring>

#include "base/socket.h"
#include "transfer/transports/hash_copy.h"
#include "transfer/transports/stream_copy.h"

namespace mooncake {
namespace {

// Below this, getting a piece to start and end at a line costs more than streaming it saves.
constexpr uint64_t kStreamPieceBytes = 4096;

}  // namespace

Result<std::unique_ptr<Window>> Mapping::Map(const Fd& file, uint64_t size_bytes,
                                             bool is_writable) {
  struct stat about{};
  if (fstat(file.get(), &about) != 0) return SystemError("fstat of a peer's segment");
  const int seals = fcntl(file.get(), F_GET_SEALS);
  if (static_cast<uint64_t>(about.st_size) != size_bytes || seals < 0 || !(seals & F_SEAL_SHRINK)) {
    return Status(Code::kWire, "the peer passed a memory file of another size, or unsealed");
  }
  const int protection = is_writable ? PROT_READ | PROT_WRITE : PROT_READ;
  void* data = mmap(nullptr, size_bytes, protection, MAP_SHARED | MAP_POPULATE, file.get(), 0);
  if (data == MAP_FAILED) return SystemError("mmap of a peer's segment");
  // A forked child could go on writing after this process said that it has unmapped.
  if (madvise(data, size_bytes, MADV_DONTFORK) != 0) {
    munmap(data, size_bytes);
    return SystemError("MADV_DONTFORK");
  }
  return std::unique_ptr<Window>(new Mapping(static_cast<uint8_t*>(data), size_bytes));
}

Mapping::~Mapping() { munmap(data_, size_bytes_); }

Status Mapping::Move(Op op, std::span<const Piece> pieces, std::span<uint32_t> checksums,
                     bool is_large, uint64_t& moved) const {
  for (size_t i = 0; i < pieces.size(); ++i) {
    const Piece& piece = pieces[i];
    auto* local = reinterpret_cast<uint8_t*>(piece.address);
    uint8_t* remote = data_ + piece.offset;
    uint8_t* target = op == Op::kRead ? local : remote;
    const uint8_t* source = op == Op::kRead ? remote : local;
    const bool is_streamed = is_large && piece.length >= kStreamPieceBytes;
    if (!checksums.empty()) {
      checksums[i] = HashCopy(target, source, piece.length, checksums[i], is_streamed);
    } else if (is_streamed) {
      StreamCopy(target, source, piece.length);
    } else {
      std::memcpy(target, source, piece.length);
    }
    moved += piece.length;
  }
  if (is_large) StreamFence();
  return Status::Ok();
}

}  // namespace mooncake
