// Bindings of native/store.
#include "bindings/bindings.h"

namespace mooncake {

void bind_store(nanobind::module_&) {}

}  // namespace mooncake
