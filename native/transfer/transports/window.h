// Window: a peer's segment, as this process can read or write it.
//
// Thread safety: Move by any thread, at the same time; all else by its owner.
// Variants: mapping.h, lent_memory.h.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "base/status.h"
#include "transfer/types.h"

namespace mooncake {

inline constexpr size_t kWindowPieces = 1024;  // IOV_MAX

class Window {
 public:
  virtual ~Window() = default;

  virtual std::string_view reason() const = 0;  // why this way was possible: a sentence

  // Where it is mapped; null: it is not.
  virtual const uint8_t* data() const { return nullptr; }

  // Moves all pieces; `moved` counts the bytes, also when it fails midway. `is_large`: the
  // whole batch is, kStreamBytes or more. `checksums`, one a piece or none, go on with its bytes.
  // REQUIRES: at most kWindowPieces; all lie inside.
  virtual Status Move(Op op, std::span<const Piece> pieces, std::span<uint32_t> checksums,
                      bool is_large, uint64_t& moved) const = 0;
};

}  // namespace mooncake
