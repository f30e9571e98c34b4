// Mapping: a peer's memory file, mapped here.
//
// Thread safety: as a value with one owner.
#pragma once

#include <cstdint>
#include <utility>

#include "base/fd.h"
#include "base/status.h"

namespace mooncake {

class Mapping {
 public:
  Mapping() = default;
  // Maps all of `file`, prefaulted. kWire when it is not `size_bytes` long, sealed: touching a page
  // of a file that shrinks would be fatal.
  static Result<Mapping> Map(const Fd& file, uint64_t size_bytes, bool is_writable);

  Mapping(Mapping&& other) noexcept
      : data_(std::exchange(other.data_, nullptr)), size_bytes_(other.size_bytes_) {}
  Mapping& operator=(Mapping&& other) noexcept {
    std::swap(data_, other.data_);
    std::swap(size_bytes_, other.size_bytes_);
    return *this;
  }
  ~Mapping() { Unmap(); }

  uint8_t* data() const { return data_; }  // null when nothing is mapped
  void Unmap();

 private:
  Mapping(uint8_t* data, uint64_t size_bytes) : data_(data), size_bytes_(size_bytes) {}

  uint8_t* data_ = nullptr;
  uint64_t size_bytes_ = 0;
};

}  // namespace mooncake
