// Binding of native/transfer/probe.
#include "transfer/probe.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "bindings/gil.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mooncake {
namespace {

PathProbe Probe(const std::string& local, const std::string& remote, uint64_t expected_engine_id,
                double timeout_s) {
  return Unwrap(ProbePath(local, remote, expected_engine_id, Deadline::After(timeout_s)));
}

}  // namespace

void bind_probe(nb::module_& m) {
  nb::class_<PathProbe>(m, "PathProbe", "What native/transfer/probe.h found of one path.")
      .def_ro("engine_id", &PathProbe::engine_id)
      .def_ro("host_id", &PathProbe::host_id)
      .def_ro("endpoints", &PathProbe::endpoints)
      .def_ro("connect_s", &PathProbe::connect_s)
      .def_ro("latency_s", &PathProbe::latency_s)
      .def_ro("rate_bytes_per_s", &PathProbe::rate_bytes_per_s);
  m.def("probe_path", &Probe, "local"_a, "remote"_a, "expected_engine_id"_a, "timeout_s"_a,
        nb::call_guard<ReleaseGil>(), "Connect over one path and have 1 MiB echoed.");
}

}  // namespace mooncake
