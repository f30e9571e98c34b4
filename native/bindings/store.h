// The parts of the store's bindings.
#pragma once

#include <nanobind/nanobind.h>

#include "bindings/store_handles.h"

namespace mooncake {

namespace store {
class MasterClient;
}
using MasterClientHandle = Handle<store::MasterClient>;

void BindStoreClient(nanobind::module_& m);
void BindPuts(nanobind::module_& m, nanobind::class_<ClientHandle>& client);
void BindGets(nanobind::class_<ClientHandle>& client);
void BindQuestions(nanobind::class_<ClientHandle>& client);
void BindStoreObjects(nanobind::module_& m);
void BindPlacement(nanobind::module_& m);
void BindTasks(nanobind::module_& m);

}  // namespace mooncake
