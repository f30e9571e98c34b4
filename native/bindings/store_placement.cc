// Binding of native/store/placement.h, for simulators and tests.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "bindings/store.h"
#include "store/placement.h"

namespace nb = nanobind;

namespace mooncake {
namespace {

using store::NodeView;
using store::Placer;
using store::Wish;

// The node's name is a view of a Python string that the caller keeps.
NodeView MakeNode(std::string_view name, uint32_t domain, uint32_t host, uint64_t capacity_bytes,
                  uint64_t free_bytes, uint64_t evictable_bytes, bool is_open, bool is_doubted) {
  if (capacity_bytes == 0) {
    throw StatusError{Status(Code::kInvalidArgument, "a node of 0 bytes holds nothing")};
  }
  return {is_open, domain, host, capacity_bytes, free_bytes, evictable_bytes, name, is_doubted};
}

// Where a master would put copies were every node as empty as it looks.
std::vector<uint32_t> Place(Placer& self, const std::vector<NodeView>& nodes, uint64_t bytes,
                            uint32_t copies, uint32_t host,
                            const std::vector<std::string>& preferred) {
  std::vector<uint32_t> slots;
  self.Begin(nodes, {.bytes = bytes, .host = host, .preferred = preferred});
  while (slots.size() < copies) {
    const uint32_t slot = self.Next();
    if (slot == Placer::kNone) break;
    self.Take(slot);
    slots.push_back(slot);
  }
  return slots;
}

}  // namespace

void BindPlacement(nb::module_& m) {
  nb::class_<NodeView>(m, "NodeView", "A node as placement sees it.")
      .def_static("make", MakeNode, nb::arg("name"), nb::kw_only(), nb::arg("domain"),
                  nb::arg("host") = 0, nb::arg("capacity_bytes"), nb::arg("free_bytes"),
                  nb::arg("evictable_bytes") = 0, nb::arg("is_open") = true,
                  nb::arg("is_doubted") = false, nb::keep_alive<0, 1>());
  nb::class_<Placer>(m, "Placement", "On which nodes an object's bytes go.")
      .def_static(
          "make",
          [](const std::string& strategy, uint64_t seed) {
            return Unwrap(Placer::Make(strategy, seed));
          },
          nb::arg("strategy"), nb::kw_only(), nb::arg("seed") = 0)
      .def_static("strategies", &Placer::Strategies)
      .def_static(
          "count_domains",
          [](const std::vector<NodeView>& nodes) { return Placer::CountDomains(nodes); },
          nb::arg("nodes"))
      .def("place", Place, nb::arg("nodes"), nb::kw_only(), nb::arg("bytes"), nb::arg("copies") = 1,
           nb::arg("host") = Wish::kNoHost, nb::arg("preferred") = std::vector<std::string>(),
           "Return the indices of the nodes that get a copy.");
}

}  // namespace mooncake
