// Bindings of native/transfer/scheduler.h, for simulators and tests.
#include "transfer/scheduler.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>

#include "bindings/bindings.h"

namespace nb = nanobind;

namespace mooncake {
namespace {

using Slice = PathScheduler::Slice;
using OptionalPair = std::optional<std::pair<PathIndex, uint64_t>>;

void BindReport(nb::module_& m) {
  nb::enum_<PathState>(m, "PathState")
      .value("kUp", PathState::kUp)
      .value("kQuarantined", PathState::kQuarantined)
      .value("kProbing", PathState::kProbing);
  nb::class_<PathReport>(m, "PathReport", "What one path has done, and how it looks now.")
      .def_ro("state", &PathReport::state)
      .def_ro("rate_bytes_per_s", &PathReport::rate_bytes_per_s, "0: not measured yet.")
      .def_ro("latency_s", &PathReport::latency_s)
      .def_ro("in_flight_bytes", &PathReport::in_flight_bytes)
      .def_ro("in_flight_slices", &PathReport::in_flight_slices)
      .def_ro("completed_bytes", &PathReport::completed_bytes)
      .def_ro("completed_slices", &PathReport::completed_slices)
      .def_ro("returned_slices", &PathReport::returned_slices)
      .def_ro("failures", &PathReport::failures)
      .def_ro("quarantines", &PathReport::quarantines);
  nb::class_<Slice>(m, "PathSlice", "A slice under way; to be completed or returned once.")
      .def_ro("path", &Slice::path)
      .def_ro("bytes", &Slice::bytes);
}

void BindBatches(nb::class_<PathScheduler>& scheduler) {
  scheduler
      .def(
          "begin",
          [](PathScheduler& self, bool is_background, double now) {
            return self.Begin(is_background ? Priority::kBackground : Priority::kForeground, now);
          },
          nb::kw_only(), nb::arg("is_background"), nb::arg("now"), "Return the batch's index.")
      .def("end", &PathScheduler::End, nb::arg("batch"))
      .def(
          "pick",
          [](PathScheduler& self, BatchIndex batch, uint64_t left_bytes, PathMask near,
             PathMask open, double now) -> OptionalPair {
            const auto choice = self.Pick(batch, {left_bytes, near, open}, now);
            if (!choice) return std::nullopt;
            return std::pair(choice->path, choice->slice_bytes);
          },
          nb::arg("batch"), nb::arg("left_bytes"), nb::kw_only(), nb::arg("near") = kAllPaths,
          nb::arg("open") = kAllPaths, nb::arg("now"), "Return (path, bytes at most), or None.")
      .def("start", &PathScheduler::Start, nb::arg("batch"), nb::arg("path"), nb::arg("bytes"),
           nb::arg("now"))
      .def("completed", &PathScheduler::Completed, nb::arg("slice"), nb::arg("now"))
      .def("returned", &PathScheduler::Returned, nb::arg("slice"))
      .def("must_move", &PathScheduler::MustMove, nb::arg("slice"))
      .def("next_event_s", &PathScheduler::NextEventS, nb::arg("batch"), nb::arg("now"));
}

void BindPaths(nb::class_<PathScheduler>& scheduler) {
  scheduler.def("add_path", &PathScheduler::AddPath, "Return the path's index.")
      .def("progress", &PathScheduler::Progress, nb::arg("path"), nb::arg("now"))
      .def("failed", &PathScheduler::Failed, nb::arg("path"), nb::arg("now"))
      .def("stalled", &PathScheduler::Stalled, nb::arg("now"), "Return a mask of paths.")
      .def("to_probe", &PathScheduler::ToProbe, nb::arg("now"), "Return a mask of paths.")
      .def("probed", &PathScheduler::Probed, nb::arg("path"), nb::arg("is_good"), nb::arg("now"))
      .def("report", &PathScheduler::report, nb::arg("path"), nb::rv_policy::copy)
      .def("check", &PathScheduler::Check, "End the process if an invariant does not hold.")
      .def_prop_ro("up", &PathScheduler::up, "A mask of paths.");
}

}  // namespace

void bind_scheduler(nb::module_& m) {
  BindReport(m);
  nb::class_<PathScheduler> scheduler(m, "PathScheduler", "Chooses the path of each slice; pure.");
  scheduler.def(
      "__init__",
      [](PathScheduler* self, uint64_t slice_bytes, double stall_s, double far_factor) {
        SchedulerOptions options;
        options.slice_bytes = slice_bytes;
        options.stall_s = stall_s;
        options.far_factor = far_factor;
        new (self) PathScheduler(options);
      },
      nb::kw_only(), nb::arg("slice_bytes") = SchedulerOptions{}.slice_bytes,
      nb::arg("stall_s") = SchedulerOptions{}.stall_s,
      nb::arg("far_factor") = SchedulerOptions{}.far_factor);
  BindBatches(scheduler);
  BindPaths(scheduler);
}

}  // namespace mooncake
