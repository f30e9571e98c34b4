// View: bytes of a peer's segment on this host that are read where they are, without a copy.
//
// Thread safety: immutable; destroying it by any thread.
// Ownership: it keeps the memory mapped, whatever becomes of the engine, the remote segment and the
// owner: also after Rotate(), Close() and the owner's end, and when the owner has closed the
// segment. The owner's Fence of the peer id that it was made under waits until it is gone, or this
// process. Whether the bytes still mean what they did is between the owner and its readers.
// A forked child has neither the mapping nor a say: it must not read it, and may destroy it.
#pragma once

#include <cstdint>
#include <memory>
#include <utility>

namespace mooncake {

class View : public std::enable_shared_from_this<View> {
 public:
  // `pin` is what keeps the bytes mapped.
  View(const uint8_t* data, uint64_t size_bytes, std::shared_ptr<const void> pin)
      : data_(data), size_bytes_(size_bytes), pin_(std::move(pin)) {}

  const uint8_t* data() const { return data_; }
  uint64_t size_bytes() const { return size_bytes_; }

 private:
  const uint8_t* const data_;
  const uint64_t size_bytes_;
  const std::shared_ptr<const void> pin_;
};

}  // namespace mooncake
