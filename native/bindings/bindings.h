// What the parts of the extension share. Only bindings know Python.
#pragma once

#include <nanobind/nanobind.h>

#include "base/status.h"

namespace mooncake {

// Crosses into Python as _native.Error(code, message, is_dirty).
struct StatusError {
  Status status;
};

inline void Check(Status status) {
  if (!status.ok()) throw StatusError{std::move(status)};
}

template <typename T>
T Unwrap(Result<T> result) {
  if (!result.ok()) throw StatusError{result.status()};
  return std::move(result).value();
}

void bind_transfer(nanobind::module_& m);
void bind_store(nanobind::module_& m);
void bind_probe(nanobind::module_& m);
void bind_scheduler(nanobind::module_& m);
void bind_policy(nanobind::module_& m);
void bind_bench(nanobind::module_& m);

}  // namespace mooncake
