// The extension module: one error type, then each part's own bindings.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include "bindings/bindings.h"

namespace nb = nanobind;

namespace mooncake {
namespace {

nb::handle error_type;

void Translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const StatusError& error) {
    const nb::object code = nb::cast(error.status.code());
    const nb::tuple arguments =
        nb::make_tuple(code, error.status.message(), error.status.is_dirty());
    PyErr_SetObject(error_type.ptr(), arguments.ptr());
  }
}

void BindError(nb::module_& m) {
  nb::enum_<Code>(m, "Code", "Why an operation failed; native/base/status.h says more.")
      .value("kOk", Code::kOk)
      .value("kInvalidArgument", Code::kInvalidArgument)
      .value("kWire", Code::kWire)
      .value("kTimeout", Code::kTimeout)
      .value("kPeerUnreachable", Code::kPeerUnreachable)
      .value("kBufferNotRegistered", Code::kBufferNotRegistered)
      .value("kChecksumMismatch", Code::kChecksumMismatch)
      .value("kFenced", Code::kFenced)
      .value("kOutOfSpace", Code::kOutOfSpace)
      .value("kLeaseExpired", Code::kLeaseExpired)
      .value("kStaleEpoch", Code::kStaleEpoch)
      .value("kNotFound", Code::kNotFound)
      .value("kAlreadyExists", Code::kAlreadyExists)
      .value("kUnavailable", Code::kUnavailable)
      .value("kSystem", Code::kSystem)
      .value("kClosed", Code::kClosed)
      .value("kWrongPeer", Code::kWrongPeer)
      .value("kCancelled", Code::kCancelled)
      .value("kReadOnly", Code::kReadOnly)
      .value("kNotNotified", Code::kNotNotified)
      .value("kTooFewNodes", Code::kTooFewNodes)
      .value("kGroupGone", Code::kGroupGone);
  // args are (code, message, is_dirty).
  error_type = PyErr_NewExceptionWithDoc(
      "mooncake_core._native.Error",
      "What a native call reports: args are (Code, message, is_dirty).", nullptr, nullptr);
  m.attr("Error") = error_type;
  nb::register_exception_translator(Translate);
}

}  // namespace
}  // namespace mooncake

NB_MODULE(_native, m) {
  nb::set_leak_warnings(false);  // an interpreter that exits keeps what its modules hold
  mooncake::BindError(m);
  mooncake::bind_transfer(m);
  mooncake::bind_store(m);
  mooncake::bind_probe(m);
  mooncake::bind_scheduler(m);
  mooncake::bind_policy(m);
  mooncake::bind_bench(m);
}
