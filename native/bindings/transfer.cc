// Bindings of native/transfer.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include "base/crc32c.h"
#include "bindings/bindings.h"
#include "transfer/engine.h"

namespace nb = nanobind;

namespace mooncake {

void bind_transfer(nb::module_&) {}

}  // namespace mooncake
