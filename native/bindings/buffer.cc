#include "bindings/buffer.h"

#include "base/check.h"
#include "bindings/bindings.h"
#include "bindings/gil.h"

namespace nb = nanobind;

namespace mooncake {

HeldBuffer::HeldBuffer(nb::handle object) {
  if (PyObject_GetBuffer(object.ptr(), &view_, PyBUF_SIMPLE) != 0) throw nb::python_error();
}

RegisteredBuffer::RegisteredBuffer(std::shared_ptr<Engine> engine, nb::handle source)
    : engine_(std::move(engine)),
      held_(std::make_unique<HeldBuffer>(source)),
      address_(reinterpret_cast<uint64_t>(held_->data())),
      size_bytes_(held_->size_bytes()),
      access_(held_->is_read_only() ? Access::kSource : Access::kBoth) {
  Check(Register(false));
  is_open_ = true;
}

RegisteredBuffer::RegisteredBuffer(std::shared_ptr<Engine> engine, uint64_t address,
                                   uint64_t size_bytes, nb::object owner, bool on_device,
                                   bool is_read_only)
    : engine_(std::move(engine)),
      owner_(std::move(owner)),
      address_(address),
      size_bytes_(size_bytes),
      access_(is_read_only ? Access::kSource : Access::kBoth) {
  Check(Register(on_device));
  is_open_ = true;
}

RegisteredBuffer::~RegisteredBuffer() { Close(); }

Status RegisteredBuffer::Register(bool on_device) {
  if (!on_device) return engine_->RegisterBuffer(address_, size_bytes_, access_);
  const ReleaseGil release;  // the first time, a driver is loaded
  return engine_->RegisterDeviceBuffer(address_, size_bytes_, access_);
}

void RegisteredBuffer::Close() {
  if (!std::exchange(is_open_, false)) return;
  {
    const ReleaseGil release;
    const Status status = engine_->UnregisterBuffer(address_, size_bytes_, access_);
    MC_CHECK(status.ok(), "%s", status.message().c_str());
  }
  held_.reset();
  owner_ = nb::object();
}

}  // namespace mooncake
