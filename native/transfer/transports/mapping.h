// Mapping: a peer's memory file, mapped here.
//
// Thread safety: see Window.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "base/fd.h"
#include "base/status.h"
#include "transfer/transports/window.h"

namespace mooncake {

class Mapping : public Window {
 public:
  // Maps all of `file`, prefaulted. kWire when it is not `size_bytes` long, sealed: touching a page
  // of a file that shrinks would be fatal.
  static Result<std::unique_ptr<Window>> Map(const Fd& file, uint64_t size_bytes, bool is_writable);
  ~Mapping() override;
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  std::string_view reason() const override {
    return "the peer is on this host and shares the memory";
  }
  const uint8_t* data() const override { return data_; }
  Status Move(Op op, std::span<const Piece> pieces, std::span<uint32_t> checksums, bool is_large,
              uint64_t& moved) const override;

 private:
  Mapping(uint8_t* data, uint64_t size_bytes) : data_(data), size_bytes_(size_bytes) {}

  uint8_t* const data_;
  const uint64_t size_bytes_;
};

}  // namespace mooncake
