// Bindings of native/bench: baselines and patterns. All of them let go of the GIL.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include "bench/baseline.h"
#include "bench/master_load.h"
#include "bench/pattern.h"
#include "bench/socket_peer.h"
#include "bindings/bindings.h"
#include "bindings/buffer.h"
#include "bindings/gil.h"
#include "transfer/host_id.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mooncake {
namespace {

using Release = nb::call_guard<ReleaseGil>;

double Memcpy(int threads, uint64_t block_bytes, uint64_t span_bytes, double seconds) {
  return Unwrap(MemcpyRate({threads, block_bytes, span_bytes, seconds}));
}

double Socket(const std::string& endpoint, Op op, int threads, uint64_t block_bytes,
              uint64_t span_bytes, double seconds) {
  return Unwrap(SocketRate(endpoint, op, {threads, block_bytes, span_bytes, seconds}));
}

void Fill(nb::handle object, uint64_t seed, uint64_t offset) {
  const HeldBuffer buffer(object);
  if (buffer.is_read_only()) {
    throw StatusError{Status(Code::kInvalidArgument, "the buffer to fill is read-only")};
  }
  const ReleaseGil release;
  FillPattern(const_cast<void*>(buffer.data()), buffer.size_bytes(), seed, offset);
}

int64_t FirstWrong(nb::handle object, uint64_t seed, uint64_t offset) {
  const HeldBuffer buffer(object);
  const ReleaseGil release;
  const uint64_t at = CheckPattern(buffer.data(), buffer.size_bytes(), seed, offset);
  return at == buffer.size_bytes() ? -1 : static_cast<int64_t>(at);
}

void BindMasterLoad(nb::module_& m) {
  nb::class_<MasterLoadTime>(m, "MasterLoadTime", "What puts cost the core itself.")
      .def_ro("put", &MasterLoadTime::put)
      .def_ro("refused", &MasterLoadTime::refused)
      .def_ro("retries", &MasterLoadTime::retries, "Answers that said to ask again.")
      .def_ro("wall_s", &MasterLoadTime::wall_s)
      .def_ro("cpu_s", &MasterLoadTime::cpu_s);
  nb::class_<MasterLoad>(m, "MasterLoad", "Puts objects into a master core, and nothing else.")
      .def(
          "__init__",
          [](MasterLoad* self, uint64_t room_objects, uint32_t nodes, uint64_t size_bytes,
             uint32_t batch) {
            const bool is_sane = nodes > 0 && room_objects >= nodes && size_bytes > 0 &&
                                 batch > 0 && batch <= store::kMaxBatch;
            if (!is_sane) {
              throw StatusError{
                  Status(Code::kInvalidArgument, "every option must be above 0, batch at most " +
                                                     std::to_string(store::kMaxBatch))};
            }
            new (self) MasterLoad({nodes, room_objects, size_bytes, batch});
          },
          nb::kw_only(), "room_objects"_a, "nodes"_a = 1, "size_bytes"_a = 4096, "batch"_a = 128)
      .def("put", &MasterLoad::Put, "count"_a, Release(), "Put so many more objects.")
      .def_prop_ro("objects", &MasterLoad::objects)
      .def_prop_ro("evictions", &MasterLoad::evictions)
      .def_ro_static("key_bytes", &MasterLoad::kKeyBytes);
}

}  // namespace

void bind_bench(nb::module_& m) {
  BindMasterLoad(m);
  m.def("memcpy_rate", &Memcpy, "threads"_a, "block_bytes"_a, "span_bytes"_a, "seconds"_a,
        Release(),
        "Bytes a second of memcpy over all threads, each walking round span_bytes of its own.");
  m.def("socket_rate", &Socket, "endpoint"_a, "op"_a, "streams"_a, "block_bytes"_a, "span_bytes"_a,
        "seconds"_a, Release(), "Bytes a second over plain sockets to or from a SocketPeer.");
  nb::class_<SocketPeer>(m, "SocketPeer", "The other end of socket_rate, in another process.")
      .def_static(
          "create", [](const std::string& listen) { return Unwrap(SocketPeer::Create(listen)); },
          "listen"_a)
      .def_prop_ro("endpoint", &SocketPeer::endpoint)
      .def("close", &SocketPeer::Close, Release());
  m.def("fill_pattern", &Fill, "buffer"_a, "seed"_a, "offset"_a = 0,
        "Write the pattern of `seed` from its byte `offset` on.");
  m.def("first_wrong_byte", &FirstWrong, "buffer"_a, "seed"_a, "offset"_a = 0,
        "The index of the first byte that is not the pattern's; -1: there is none.");
  m.def("host_id", &ReadHostId, "Equal iff two processes can share memory.");
}

}  // namespace mooncake
