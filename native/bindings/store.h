// The parts of the store's bindings.
#pragma once

#include <nanobind/nanobind.h>

namespace mooncake {

void BindStoreClient(nanobind::module_& m);
void BindStoreObjects(nanobind::module_& m);
void BindPlacement(nanobind::module_& m);
void BindTasks(nanobind::module_& m);

}  // namespace mooncake
