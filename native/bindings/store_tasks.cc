// Binding of the master's background tasks, for admin tools.
#include <nanobind/nanobind.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings/bindings.h"
#include "bindings/gil.h"
#include "bindings/store.h"
#include "store/master_client.h"

namespace nb = nanobind;

namespace mooncake {
namespace {

using store::MessageType;

// The number of the new task, or 0 and why there is none.
std::pair<uint64_t, std::string> CreateTask(const MasterClientHandle& client, uint8_t kind,
                                            const nb::bytes& key, std::string source,
                                            std::vector<std::string> targets, double timeout_s) {
  const store::TaskCreate event{static_cast<store::TaskKind>(kind),
                                {key.c_str(), key.size()},
                                std::move(source),
                                std::move(targets)};
  const ReleaseGil released;
  auto created = Unwrap(client->Call<store::TaskCreated>(MessageType::kTaskCreate, event,
                                                         Deadline::After(timeout_s)));
  return {created.task, std::move(created.problem)};
}

nb::bytes QueryTasks(const MasterClientHandle& client, std::vector<uint64_t> tasks, bool is_cancel,
                     double timeout_s) {
  std::vector<uint8_t> body;
  {
    const ReleaseGil released;
    const store::TaskQuery event{std::move(tasks), is_cancel};
    store::Encode(Unwrap(client->Call<store::Tasks>(MessageType::kTaskQuery, event,
                                                    Deadline::After(timeout_s))),
                  body);
  }
  return nb::bytes(reinterpret_cast<const char*>(body.data()), body.size());
}

}  // namespace

void BindTasks(nb::module_& m) {
  m.def("create_task", CreateTask, nb::arg("client"), nb::kw_only(), nb::arg("kind"),
        nb::arg("key"), nb::arg("source"), nb::arg("targets"), nb::arg("timeout_s"),
        "Return the task's number, or 0 and why there is none.");
  m.def("query_tasks", QueryTasks, nb::arg("client"), nb::kw_only(), nb::arg("tasks"),
        nb::arg("is_cancel"), nb::arg("timeout_s"),
        "Return the msgpack body of the answer; no tasks: all that are remembered.");
}

}  // namespace mooncake
