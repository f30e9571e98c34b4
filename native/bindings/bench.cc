// Bindings of native/bench: baselines and patterns. All of them let go of the GIL.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/unique_ptr.h>

#include "bench/baseline.h"
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

}  // namespace

void bind_bench(nb::module_& m) {
  using Release = nb::call_guard<ReleaseGil>;
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
