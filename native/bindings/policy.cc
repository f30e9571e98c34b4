// Bindings of native/policy, for simulators and tests.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "bindings/gil.h"
#include "policy/admission.h"
#include "policy/eviction.h"
#include "policy/replay.h"

namespace nb = nanobind;

namespace mooncake {
namespace {

using Keys = nb::ndarray<const uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

constexpr uint32_t kMaxId = (1u << 28) - 1;  // 3 GiB of state

void Require(bool holds, const std::string& what) {
  if (!holds) throw StatusError{Status(Code::kInvalidArgument, what)};
}

void RequireThere(const Eviction& policy, uint32_t id) {
  Require(policy.Contains(id), "id " + std::to_string(id) + " was not inserted");
}

std::optional<uint32_t> OrNone(uint32_t id) {
  return id == Eviction::kNone ? std::nullopt : std::optional(id);
}

uint64_t Replay(const Keys& keys, uint32_t capacity_blocks, const std::string& policy) {
  Require(capacity_blocks > 0 && capacity_blocks <= kMaxId, "capacity_blocks is out of bounds");
  const auto eviction = Unwrap(MakeEviction(policy));
  const ReleaseGil release;
  return ReplayTrace({keys.data(), keys.size()}, capacity_blocks, *eviction);
}

void Insert(Eviction& self, uint32_t id, EvictionClass in, uint32_t depth) {
  Require(id <= kMaxId && !self.Contains(id), "id " + std::to_string(id) + " cannot be inserted");
  self.Insert(id, in, {depth});
}

std::optional<uint32_t> Next(Eviction& self, uint32_t id, EvictionClass limit) {
  RequireThere(self, id);
  Require(self.ClassOf(id) != EvictionClass::kHeld, "a held id is not in the order");
  return OrNone(self.Next(id, limit));
}

// Wraps a call that needs an id that is there.
template <auto kMethod>
auto Checked() {
  return [](Eviction& self, uint32_t id) {
    RequireThere(self, id);
    return (self.*kMethod)(id);
  };
}

void BindEviction(nb::module_& m) {
  nb::enum_<EvictionClass>(m, "EvictionClass", "Victims come from the first that has any.")
      .value("kExtra", EvictionClass::kExtra)
      .value("kLeaf", EvictionClass::kLeaf)
      .value("kInterior", EvictionClass::kInterior)
      .value("kSoftPinned", EvictionClass::kSoftPinned)
      .value("kHeld", EvictionClass::kHeld);
  constexpr auto kLast = EvictionClass::kSoftPinned;
  nb::class_<Eviction>(m, "Eviction", "In which order things go, by small ids. See eviction.h.")
      .def(nb::new_([](const std::string& policy) { return Unwrap(MakeEviction(policy)); }),
           nb::arg("policy"))
      .def("insert", &Insert, nb::arg("id"), nb::arg("class_"), nb::kw_only(), nb::arg("depth") = 0)
      .def("touch", Checked<&Eviction::Touch>(), nb::arg("id"))
      .def(
          "set_class",
          [](Eviction& self, uint32_t id, EvictionClass to, bool goes_next) {
            RequireThere(self, id);
            self.SetClass(id, to, goes_next);
          },
          nb::arg("id"), nb::arg("class_"), nb::kw_only(), nb::arg("goes_next") = false)
      .def("remove", Checked<&Eviction::Remove>(), nb::arg("id"))
      .def(
          "victim", [](Eviction& self, EvictionClass limit) { return OrNone(self.Victim(limit)); },
          nb::arg("limit") = kLast, "Return who goes first, or None.")
      .def("next", &Next, nb::arg("id"), nb::arg("limit") = kLast, "Return who goes after `id`.")
      .def("class_of", Checked<&Eviction::ClassOf>(), nb::arg("id"))
      .def("count_of", &Eviction::CountOf, nb::arg("class_"))
      .def("__contains__", &Eviction::Contains, nb::arg("id"))
      .def("__len__", &Eviction::count)
      .def("check", &Eviction::Check, "End the process if an invariant does not hold.");
  m.def("eviction_names", &EvictionNames);
  m.def("replay", &Replay, nb::arg("keys").noconvert(), nb::arg("capacity_blocks"),
        nb::arg("policy"), "Return how many accesses hit a cache of so many blocks.");
}

void BindAdmission(nb::module_& m) {
  const AdmissionOptions defaults;
  nb::class_<Admission>(m, "Admission", "Which puts are worth it.")
      .def(nb::new_([](const std::string& policy, double window_s, uint64_t keys) {
             return Unwrap(MakeAdmission(policy, {window_s, keys}));
           }),
           nb::arg("policy"), nb::kw_only(), nb::arg("window_s") = defaults.window_s,
           nb::arg("keys") = defaults.keys)
      .def("admit", &Admission::Admit, nb::arg("key_hash"), nb::arg("bytes"), nb::kw_only(),
           nb::arg("now_s"));
  m.def("admission_names", &AdmissionNames);
}

}  // namespace

void bind_policy(nb::module_& m) {
  BindEviction(m);
  BindAdmission(m);
}

}  // namespace mooncake
