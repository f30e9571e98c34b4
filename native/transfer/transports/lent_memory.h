// LentMemory: a segment whose memory its owner had already; the kernel copies between processes.
//
// Thread safety: see Window.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "base/status.h"
#include "transfer/transports/process.h"
#include "transfer/transports/window.h"

namespace mooncake {

class LentMemory : public Window {
 public:
  // [address, address + size_bytes) of `owner`. Looks whether the kernel permits it: kSystem, with
  // the reason.
  static Result<std::unique_ptr<Window>> Open(std::shared_ptr<const Process> owner,
                                              uint64_t address, uint64_t size_bytes);

  std::string_view reason() const override {
    return "the peer is on this host, and its kernel reaches the memory that it lends";
  }
  Status Move(Op op, std::span<const Piece> pieces, std::span<uint32_t> checksums, bool is_large,
              uint64_t& moved) const override;

 private:
  LentMemory(std::shared_ptr<const Process> owner, uint64_t address)
      : owner_(std::move(owner)), address_(address) {}

  const std::shared_ptr<const Process> owner_;
  const uint64_t address_;
};

}  // namespace mooncake
