// Python objects with the buffer protocol, as memory for native code.
//
// Thread safety: construct, close and destroy with the GIL held.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>

#include "transfer/engine.h"

namespace mooncake {

// Holds the memory of a contiguous object: it stays where it is until this is destroyed.
class HeldBuffer {
 public:
  // Raises what Python raises: TypeError without the protocol, BufferError when not contiguous.
  explicit HeldBuffer(nanobind::handle object);
  ~HeldBuffer() { PyBuffer_Release(&view_); }
  HeldBuffer(const HeldBuffer&) = delete;
  HeldBuffer& operator=(const HeldBuffer&) = delete;

  const void* data() const { return view_.buf; }
  uint64_t size_bytes() const { return static_cast<uint64_t>(view_.len); }
  bool is_read_only() const { return view_.readonly != 0; }

 private:
  Py_buffer view_{};
};

// Memory registered with an engine. Its owner is kept alive until Close, which waits, without the
// GIL, for batches that use it.
class RegisteredBuffer {
 public:
  // Read-only objects are registered as sources only.
  RegisteredBuffer(std::shared_ptr<Engine> engine, nanobind::handle source);
  // `on_device`: it is memory of a GPU; see Engine::RegisterDeviceBuffer.
  RegisteredBuffer(std::shared_ptr<Engine> engine, uint64_t address, uint64_t size_bytes,
                   nanobind::object owner, bool on_device, bool is_read_only);
  ~RegisteredBuffer();

  uint64_t address() const { return address_; }
  uint64_t size_bytes() const { return size_bytes_; }
  bool is_read_only() const { return access_ == Access::kSource; }
  void Close();

 private:
  Status Register(bool on_device);

  const std::shared_ptr<Engine> engine_;
  std::unique_ptr<HeldBuffer> held_;
  nanobind::object owner_;
  const uint64_t address_;
  const uint64_t size_bytes_;
  const Access access_;
  bool is_open_ = false;
};

}  // namespace mooncake
