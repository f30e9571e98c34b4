// Binding of the store's client: what it is made of; its calls are bound by store_puts,
// store_gets and store_questions.
#include <nanobind/nanobind.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>

#include "bindings/store.h"
#include "bindings/store_handles.h"

namespace nb = nanobind;

namespace mooncake {
namespace {

using store::Client;

std::shared_ptr<Client> NewClient(std::shared_ptr<Engine> engine, std::string master,
                                  uint32_t replicas, double timeout_s, bool checksums) {
  return std::make_shared<Client>(
      std::move(engine), Client::Options{std::move(master), replicas, timeout_s, checksums});
}

}  // namespace

void BindStoreClient(nb::module_& m) {
  nb::class_<ClientHandle> client(m, "StoreClient", "A process's use of the store.");
  client
      .def(
          "__init__",
          [](ClientHandle* self, std::shared_ptr<Engine> engine, std::string master,
             uint32_t replicas, double timeout_s, bool checksums) {
            new (self) ClientHandle(
                NewClient(std::move(engine), std::move(master), replicas, timeout_s, checksums));
          },
          nb::arg("engine"), nb::kw_only(), nb::arg("master"), nb::arg("replicas"),
          nb::arg("timeout_s"), nb::arg("checksums"))
      .def_prop_ro("epoch", [](const ClientHandle& self) { return self.peek().epoch(); })
      .def_prop_ro("read_counters",
                   [](const ClientHandle& self) {
                     const auto& counters = self.peek().counters();
                     return std::tuple(counters.corrupt.load(), counters.stale.load(),
                                       counters.unreachable.load());
                   })
      .def("close", ClientHandle::End<&Client::Close>);
  BindPuts(m, client);
  BindGets(client);
  BindQuestions(client);
}

}  // namespace mooncake
