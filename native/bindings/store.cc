// Bindings of native/store.
#include "bindings/store.h"

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <tuple>
#include <utility>

#include "base/check.h"
#include "bindings/bindings.h"
#include "bindings/gil.h"
#include "bindings/store_handles.h"
#include "store/allocator.h"
#include "store/dispatch.h"
#include "store/master_client.h"
#include "store/master_server.h"
#include "store/node.h"

namespace nb = nanobind;

namespace mooncake {
namespace {

std::span<const uint8_t> View(const nb::bytes& bytes) {
  return {reinterpret_cast<const uint8_t*>(bytes.c_str()), bytes.size()};
}

nb::bytes Bytes(const std::vector<uint8_t>& data) {
  return nb::bytes(reinterpret_cast<const char*>(data.data()), data.size());
}

using Sizes = nb::ndarray<const int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Offsets = nb::ndarray<int64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

void ReplayAllocations(Allocator& self, const Sizes& sizes, const Offsets& offsets) {
  if (offsets.size() != sizes.size()) {
    throw StatusError{Status(Code::kInvalidArgument, "as many offsets as sizes are wanted")};
  }
  const ReleaseGil release;
  std::vector<uint32_t> blocks(sizes.size(), Allocator::kNone);
  for (size_t at = 0; at < sizes.size(); ++at) {
    offsets(at) = -1;
    if (const int64_t size = sizes(at); size > 0) {
      const auto extent = self.Allocate(size);
      if (!extent) continue;
      offsets(at) = static_cast<int64_t>(extent->offset);
      blocks[at] = extent->block;
    } else if (const size_t freed = -size - 1; freed < at && blocks[freed] != Allocator::kNone) {
      self.Free(std::exchange(blocks[freed], Allocator::kNone));
    }
  }
}

using BlockRow = std::tuple<uint64_t, uint64_t, bool, uint32_t>;

std::vector<BlockRow> Blocks(const Allocator& self) {
  std::vector<BlockRow> rows;
  uint32_t before = Allocator::kNone;
  for (uint32_t at = self.first_block(); at != Allocator::kNone; at = self.After(at)) {
    MC_CHECK(self.Before(at) == before, "block %u", at);
    rows.emplace_back(self.OffsetOf(at), self.BytesOf(at), self.IsFree(at), at);
    before = at;
  }
  return rows;
}

void BindAllocator(nb::module_& m) {
  nb::class_<Allocator>(m, "Allocator", "Extents of [0, capacity_bytes), 64-byte granularity.")
      .def(nb::init<uint64_t>(), nb::arg("capacity_bytes"))
      .def(
          "allocate",
          [](Allocator& self, uint64_t bytes) -> std::optional<std::pair<uint64_t, uint32_t>> {
            const auto extent = self.Allocate(bytes);
            if (!extent) return std::nullopt;
            return std::pair(extent->offset, extent->block);
          },
          nb::arg("bytes"), "Return (offset, block), or None when no free extent is that large.")
      .def("free", &Allocator::Free, nb::arg("block"),
           "Return the free block that holds the range now.")
      .def(
          "replay", &ReplayAllocations, nb::arg("sizes").noconvert(),
          nb::arg("offsets").noconvert(),
          "Carry out many: a size above 0 is allocated, and its offset or -1 written; a size of -n "
          "frees what operation n - 1 was granted, if it was and is not freed yet.")
      .def("blocks", &Blocks, "Return (offset, bytes, is_free, block) by address.")
      .def_prop_ro("fragmentation", &Allocator::fragmentation)
      .def("check", &Allocator::Check, "End the process if an invariant does not hold.")
      .def_prop_ro("used_bytes", &Allocator::used_bytes)
      .def_prop_ro("capacity_bytes", &Allocator::capacity_bytes)
      .def_prop_ro("largest_free_extent", &Allocator::LargestFreeExtent);
}

void BindMasterOptions(nb::module_& m) {
  using store::MasterOptions;
  nb::class_<MasterOptions>(m, "MasterOptions", "What a master is told at its start.")
      .def(
          "__init__",
          [](MasterOptions* self, uint64_t epoch, double client_ttl_s, double lease_s,
             const std::string& eviction, const std::string& admission,
             const std::string& placement, uint64_t stripe_bytes, uint64_t seed, bool repairs,
             double hot_gets_per_s, uint32_t hot_replicas, double heat_half_life_s,
             uint32_t step_evictions, double admission_window_s, uint64_t admission_keys,
             uint32_t max_sessions) {
            new (self) MasterOptions{epoch,
                                     client_ttl_s,
                                     lease_s,
                                     eviction,
                                     admission,
                                     placement,
                                     stripe_bytes,
                                     seed,
                                     {admission_window_s, admission_keys},
                                     repairs,
                                     hot_gets_per_s,
                                     hot_replicas,
                                     heat_half_life_s,
                                     step_evictions,
                                     max_sessions};
          },
          nb::kw_only(), nb::arg("epoch"), nb::arg("client_ttl_s"), nb::arg("lease_s"),
          nb::arg("eviction") = MasterOptions{}.eviction,
          nb::arg("admission") = MasterOptions{}.admission,
          nb::arg("placement") = MasterOptions{}.placement,
          nb::arg("stripe_bytes") = MasterOptions{}.stripe_bytes,
          nb::arg("seed") = MasterOptions{}.seed, nb::arg("repairs") = MasterOptions{}.repairs,
          nb::arg("hot_gets_per_s") = MasterOptions{}.hot_gets_per_s,
          nb::arg("hot_replicas") = MasterOptions{}.hot_replicas,
          nb::arg("heat_half_life_s") = MasterOptions{}.heat_half_life_s,
          nb::arg("step_evictions") = MasterOptions{}.step_evictions,
          nb::arg("admission_window_s") = AdmissionOptions{}.window_s,
          nb::arg("admission_keys") = AdmissionOptions{}.keys,
          nb::arg("max_sessions") = MasterOptions{}.max_sessions);
}

void BindMasterCore(nb::module_& m) {
  using store::DispatchContext;
  using store::MasterCore;
  nb::class_<MasterCore>(m, "MasterCore", "The pure master, driven by the bodies of its protocol.")
      .def(
          "__init__",
          [](MasterCore* self, const store::MasterOptions& options) {
            Check(store::Validate(options));
            new (self) MasterCore(options);
          },
          nb::arg("options"))
      .def(
          "step",
          [](MasterCore& self, uint8_t type, const nb::bytes& body, double now_s,
             uint64_t fresh_id) {
            DispatchContext context{now_s, fresh_id, 0};
            std::vector<uint8_t> answer;
            Check(store::Dispatch(self, type, View(body), context, answer));
            return Bytes(answer);
          },
          nb::arg("type"), nb::arg("body"), nb::kw_only(), nb::arg("now_s"),
          nb::arg("fresh_id") = 0, "Return the answer's msgpack body, empty where there is none.")
      .def("tick", &MasterCore::Tick, nb::arg("now_s"))
      .def_prop_ro("has_background", &MasterCore::has_background, "Something waits for run_slice.")
      .def("run_slice", &MasterCore::RunSlice, nb::arg("now_s"))
      .def("node_disconnected", &MasterCore::NodeDisconnected, nb::arg("node"), nb::arg("now_s"))
      .def("check", &MasterCore::Check, "End the process if an invariant does not hold.");
}

void BindServer(nb::module_& m) {
  using store::MasterServer;
  using ServerHandle = Handle<MasterServer>;
  nb::class_<ServerHandle>(m, "MasterServer", "The master: one thread over the core.")
      .def_static(
          "start",
          [](const std::string& listen, const store::MasterOptions& options) {
            return new ServerHandle(Unwrap(MasterServer::Start(listen, options)));
          },
          nb::arg("listen"), nb::arg("options"))
      .def_prop_ro("endpoint", [](const ServerHandle& self) { return self.peek().endpoint(); })
      .def("stop", ServerHandle::End<&MasterServer::Stop>);
}

void BindMasterClient(nb::module_& m) {
  nb::class_<MasterClientHandle>(m, "MasterClient", "Asks a master; for admin tools.")
      .def(
          "__init__",
          [](MasterClientHandle* self, std::string address) {
            new (self)
                MasterClientHandle(std::make_shared<store::MasterClient>(std::move(address)));
          },
          nb::arg("address"))
      .def(
          "stats",
          [](const MasterClientHandle& self, double timeout_s) {
            std::vector<uint8_t> body;
            {
              const ReleaseGil released;
              store::Encode(
                  Unwrap(self->Call<store::Stats>(store::MessageType::kStats, store::One{},
                                                  Deadline::After(timeout_s))),
                  body);
            }
            return Bytes(body);
          },
          nb::arg("timeout_s"), "Return the msgpack body of a stats answer.");
}

void BindNode(nb::module_& m) {
  using store::Node;
  using NodeHandle = Handle<Node>;
  nb::class_<NodeHandle>(m, "StoreNode", "Lends memory to the store.")
      .def_static(
          "start",
          [](std::shared_ptr<Engine> engine, std::string master, uint64_t capacity_bytes,
             std::string name, std::string domain) {
            const ReleaseGil released;  // taking memory takes a while
            return new NodeHandle(
                Unwrap(Node::Start(std::move(engine), {std::move(master), capacity_bytes,
                                                       std::move(name), std::move(domain)})));
          },
          nb::arg("engine"), nb::kw_only(), nb::arg("master"), nb::arg("capacity_bytes"),
          nb::arg("name") = "", nb::arg("domain") = "")
      .def_prop_ro(
          "epoch", [](const NodeHandle& self) { return self->epoch(); },
          "Of the master that knows this node; 0: none does.")
      .def_prop_ro("id", [](const NodeHandle& self) { return self->id(); })
      .def_prop_ro(
          "refusal", [](const NodeHandle& self) { return self->refusal(); },
          "Why the master does not take it in, as it said last; empty: it does.")
      .def_prop_ro(
          "unanswered_s", [](const NodeHandle& self) { return self->unanswered_s(); },
          "Since the first heartbeat in a row that failed; 0: its master answers.")
      .def_prop_ro(
          "has_given_up", [](const NodeHandle& self) { return self->has_given_up(); },
          "It was refused for good.")
      .def("close", NodeHandle::End<&Node::Close>);
}

}  // namespace

void bind_store(nb::module_& m) {
  BindAllocator(m);
  BindMasterOptions(m);
  BindMasterCore(m);
  BindServer(m);
  BindMasterClient(m);
  BindNode(m);
  BindStoreObjects(m);
  BindStoreClient(m);
  BindPlacement(m);
  BindTasks(m);
}

}  // namespace mooncake
