// Bindings of native/transfer: the engine and the checksums. What may block or takes long lets go
// of the GIL.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/string_view.h>
#include <nanobind/stl/vector.h>

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "bindings/bindings.h"
#include "bindings/buffer.h"
#include "bindings/gil.h"
#include "transfer/engine.h"

namespace nb = nanobind;
using namespace nb::literals;

namespace mooncake {
namespace {

using Numbers = nb::ndarray<const uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;
using Remote = std::shared_ptr<RemoteSegment>;

// What Python keeps beside an object, and drops after it: letting go of the object, which may unmap
// memory, then keeps no other Python thread waiting.
class Hold {
 public:
  explicit Hold(std::shared_ptr<Segment> held) : held_(std::move(held)) {}
  explicit Hold(Remote held) : held_(std::move(held)) {}
  Hold(const Hold&) = delete;
  Hold& operator=(const Hold&) = delete;
  ~Hold() {
    const ReleaseGil release;
    held_.reset();
  }

 private:
  std::shared_ptr<void> held_;
};

std::vector<Piece> Pieces(const Numbers& addresses, const Numbers& offsets,
                          const Numbers& lengths) {
  const size_t count = addresses.size();
  if (offsets.size() != count || lengths.size() != count) {
    throw StatusError{Status(Code::kInvalidArgument,
                             std::to_string(count) + " addresses, " +
                                 std::to_string(offsets.size()) + " offsets and " +
                                 std::to_string(lengths.size()) + " lengths; equally many needed")};
  }
  std::vector<Piece> pieces(count);
  for (size_t i = 0; i < count; ++i) {
    pieces[i] = {addresses.data()[i], offsets.data()[i], lengths.data()[i]};
  }
  return pieces;
}

using Preferred = std::map<std::string, std::vector<std::string>>;

std::shared_ptr<Engine> CreateEngine(const std::string& listen, bool use_shm, int io_threads,
                                     const std::vector<std::string>& addresses, int serve_threads,
                                     int copy_threads, uint64_t slice_bytes,
                                     const Preferred& preferred) {
  EngineOptions options;
  options.listen = listen;
  options.same_host = use_shm ? SameHost::kShm : SameHost::kNetwork;
  options.io_threads = io_threads;
  options.addresses = addresses;
  options.serve_threads = serve_threads;
  options.copy_threads = copy_threads;
  options.slice_bytes = slice_bytes;
  options.preferred = preferred;
  return Unwrap(Engine::Create(options));
}

template <typename Which>  // id or name
Remote OpenSegment(Engine& engine, const std::string& endpoint, const Which& segment,
                   double timeout_s, uint64_t engine_id) {
  return Unwrap(engine.OpenSegment(endpoint, segment, Deadline::After(timeout_s), engine_id));
}

std::shared_ptr<Segment> CreateSegment(Engine& engine, uint64_t size_bytes,
                                       const std::string& name) {
  return Unwrap(engine.CreateSegment(size_bytes, name));
}

std::shared_ptr<Segment> Lend(Engine& engine, const RegisteredBuffer& buffer, bool is_read_only,
                              const std::string& name) {
  return Unwrap(engine.Lend(buffer.address(), buffer.size_bytes(), is_read_only, name));
}

bool CloseSegment(Engine& engine, const Segment& segment, double timeout_s) {
  return engine.CloseSegment(segment, Deadline::After(timeout_s));
}

BatchOptions Options(double timeout_s, bool is_background) {
  return {Deadline::After(timeout_s),
          is_background ? Priority::kBackground : Priority::kForeground};
}

Note NoteOf(const std::optional<nb::bytes>& bytes) {
  return bytes ? Note(std::string(bytes->c_str(), bytes->size())) : Note();
}

void Execute(Engine& engine, Op op, const Remote& remote, const Numbers& addresses,
             const Numbers& offsets, const Numbers& lengths, double timeout_s, bool is_background,
             const std::optional<nb::bytes>& notify) {
  const BatchOptions options = Options(timeout_s, is_background);
  const Note note = NoteOf(notify);
  const ReleaseGil release;
  Check(engine.Execute(op, remote, Pieces(addresses, offsets, lengths), options, note));
}

std::shared_ptr<Transfer> Submit(Engine& engine, Op op, const Remote& remote,
                                 const Numbers& addresses, const Numbers& offsets,
                                 const Numbers& lengths, double timeout_s, bool is_background,
                                 const std::optional<nb::bytes>& notify) {
  const BatchOptions options = Options(timeout_s, is_background);
  const Note note = NoteOf(notify);
  const ReleaseGil release;
  return Unwrap(engine.Submit(op, remote, Pieces(addresses, offsets, lengths), options, note));
}

std::shared_ptr<PreparedTransfer> Prepare(Engine& engine, Op op, const Remote& remote,
                                          const Numbers& addresses, const Numbers& offsets,
                                          const Numbers& lengths) {
  return Unwrap(engine.Prepare(op, remote, Pieces(addresses, offsets, lengths)));
}

void ExecutePrepared(Engine& engine, PreparedTransfer& prepared, double timeout_s,
                     bool is_background, const std::optional<nb::bytes>& notify) {
  const BatchOptions options = Options(timeout_s, is_background);
  const Note note = NoteOf(notify);
  const ReleaseGil release;
  Check(engine.Execute(prepared, options, note));
}

std::shared_ptr<Transfer> SubmitPrepared(Engine& engine, PreparedTransfer& prepared,
                                         double timeout_s, bool is_background,
                                         const std::optional<nb::bytes>& notify) {
  const BatchOptions options = Options(timeout_s, is_background);
  const Note note = NoteOf(notify);
  const ReleaseGil release;
  return Unwrap(engine.Submit(prepared, options, note));
}

using NotificationList = nb::typed<nb::list, nb::typed<nb::tuple, uint64_t, nb::bytes>>;

// (peer id, data) of each.
NotificationList TakeNotifications(Engine& engine, size_t limit) {
  nb::list taken;
  for (const Notification& each : Unwrap(engine.TakeNotifications(limit))) {
    taken.append(nb::make_tuple(each.peer_id, nb::bytes(each.data.data(), each.data.size())));
  }
  return nb::cast<NotificationList>(taken);
}

bool Fence(Engine& engine, uint64_t peer_id, double timeout_s) {
  return Unwrap(engine.Fence(peer_id, Deadline::After(timeout_s)));
}

bool Wait(const Transfer& transfer, double timeout_s) {
  const auto status = transfer.Wait(Deadline::After(timeout_s));
  if (status) Check(*status);
  return status.has_value();
}

uint32_t Checksum(nb::handle object, uint32_t value) {
  const HeldBuffer buffer(object);
  const ReleaseGil release;
  return Crc32c(buffer.data(), buffer.size_bytes(), value);
}

uint32_t ChecksumGather(const Numbers& addresses, const Numbers& lengths, uint32_t value) {
  for (const Piece& piece : Pieces(addresses, lengths, lengths)) {
    value = Crc32c(reinterpret_cast<const void*>(piece.address), piece.length, value);
  }
  return value;
}

int ExportSegment(PyObject* self, Py_buffer* view, int flags) {
  const auto& segment = *nb::inst_ptr<Segment>(self);
  return PyBuffer_FillInfo(view, self, segment.data(),
                           static_cast<Py_ssize_t>(segment.size_bytes()), segment.is_read_only(),
                           flags);
}

nb::object ViewSegment(nb::handle_t<Segment> self) {
  return nb::steal<nb::object>(PyMemoryView_FromObject(self.ptr()));
}

PyType_Slot segment_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(ExportSegment)},
                               {0, nullptr}};

void BindMemory(nb::module_& m) {
  nb::class_<Segment>(m, "Segment", nb::type_slots(segment_slots), "Memory that peers may reach.")
      .def_prop_ro("id", &Segment::id)
      .def_prop_ro("size_bytes", &Segment::size_bytes)
      .def_prop_ro("name", &Segment::name)
      .def_prop_ro("address", &Segment::address)
      .def_prop_ro("is_lent", &Segment::is_lent)
      .def_prop_ro("is_read_only", &Segment::is_read_only)
      .def("view", &ViewSegment, nb::sig("def view(self) -> memoryview"),
           "All of it, writable unless read-only; the memory lives as long as a view.");
  nb::class_<RegisteredBuffer>(m, "Buffer", "Local memory of batches, kept alive until close().")
      .def(nb::init<std::shared_ptr<Engine>, nb::handle>(), "engine"_a, "source"_a)
      .def(nb::init<std::shared_ptr<Engine>, uint64_t, uint64_t, nb::object, bool, bool>(),
           "engine"_a, "address"_a, "size_bytes"_a, "owner"_a.none(), "on_device"_a = false,
           "is_read_only"_a = false)
      .def_prop_ro("address", &RegisteredBuffer::address)
      .def_prop_ro("size_bytes", &RegisteredBuffer::size_bytes)
      .def_prop_ro("is_read_only", &RegisteredBuffer::is_read_only)
      .def("close", &RegisteredBuffer::Close, "Wait for batches that use it; then let go of it.");
}

void BindRemote(nb::module_& m) {
  nb::class_<RemoteSegment>(m, "RemoteSegment", "A segment of another engine.")
      .def_prop_ro("id", &RemoteSegment::id)
      .def_prop_ro("size_bytes", &RemoteSegment::size_bytes)
      .def_prop_ro("endpoint", &RemoteSegment::endpoint)
      .def_prop_ro("transport", &RemoteSegment::transport)
      .def_prop_ro("reason", &RemoteSegment::reason)
      .def_prop_ro("is_read_only", &RemoteSegment::is_read_only);
  nb::class_<Hold>(m, "Hold", "Keeps an object; dropped after it, it lets go without the GIL.")
      .def(nb::init<std::shared_ptr<Segment>>(), "segment"_a)
      .def(nb::init<Remote>(), "remote"_a);
  nb::class_<Transfer>(m, "Transfer", "A submitted batch.")
      .def("done", &Transfer::done)
      .def("wait", &Wait, "timeout_s"_a, nb::call_guard<ReleaseGil>(),
           "True: the batch ended well. False: it has not ended yet.")
      .def("cancel", &Transfer::Cancel, nb::call_guard<ReleaseGil>())
      .def(
          "event_fd", [](Transfer& transfer) { return Unwrap(transfer.EventFd()); },
          "A descriptor that is readable once the batch has ended; owned by this.");
  nb::class_<PreparedTransfer>(m, "PreparedTransfer", "A batch to be carried out many times.")
      .def_prop_ro("piece_count", &PreparedTransfer::piece_count)
      .def_prop_ro("size_bytes", &PreparedTransfer::size_bytes);
  nb::enum_<Op>(m, "Op", "Which way bytes move.")
      .value("kRead", Op::kRead)
      .value("kWrite", Op::kWrite);
}

void BindStatistics(nb::module_& m) {
  nb::class_<PathStatistics>(m, "PathStatistics", "What one path has done so far.")
      .def_ro("peer", &PathStatistics::peer)
      .def_ro("transport", &PathStatistics::transport)
      .def_ro("local", &PathStatistics::local)
      .def_ro("remote", &PathStatistics::remote)
      .def_ro("state", &PathStatistics::state)
      .def_ro("reason", &PathStatistics::reason)
      .def_ro("read_bytes", &PathStatistics::read_bytes)
      .def_ro("written_bytes", &PathStatistics::written_bytes)
      .def_ro("slices", &PathStatistics::slices)
      .def_ro("resent_slices", &PathStatistics::resent_slices)
      .def_ro("failures", &PathStatistics::failures)
      .def_ro("quarantines", &PathStatistics::quarantines)
      .def_ro("connections", &PathStatistics::connections)
      .def_ro("in_flight_bytes", &PathStatistics::in_flight_bytes)
      .def_ro("rate_bytes_per_s", &PathStatistics::rate_bytes_per_s);
}

void BindEngine(nb::module_& m) {
  using Release = nb::call_guard<ReleaseGil>;
  nb::class_<Engine>(m, "Engine", "native/transfer/engine.h is its contract.")
      .def_static("create", &CreateEngine, "listen"_a, "use_shm"_a, "io_threads"_a, "addresses"_a,
                  "serve_threads"_a, "copy_threads"_a, "slice_bytes"_a, "preferred"_a, Release())
      .def_prop_ro("endpoint", &Engine::endpoint)
      .def_prop_ro("peer_id", &Engine::peer_id)
      .def_prop_ro("engine_id", &Engine::engine_id)
      .def_prop_ro("host_id", &Engine::host_id)
      .def("create_segment", &CreateSegment, "size_bytes"_a, "name"_a, Release())
      .def("lend", &Lend, "buffer"_a, "is_read_only"_a, "name"_a, nb::keep_alive<0, 2>(),
           "The segment keeps the buffer, until close_segment has given True.")
      .def("close_segment", &CloseSegment, "segment"_a, "timeout_s"_a, Release(),
           "True: the memory is free. False: peers can reach it still.")
      .def("open_segment", &OpenSegment<uint64_t>, "endpoint"_a, "segment_id"_a, "timeout_s"_a,
           "engine_id"_a, Release())
      .def("open_segment", &OpenSegment<std::string>, "endpoint"_a, "name"_a, "timeout_s"_a,
           "engine_id"_a, Release())
      .def("execute", &Execute, "op"_a, "remote"_a, "addresses"_a.noconvert(),
           "offsets"_a.noconvert(), "lengths"_a.noconvert(), "timeout_s"_a, "is_background"_a,
           "notify"_a.none())
      .def("submit", &Submit, "op"_a, "remote"_a, "addresses"_a.noconvert(),
           "offsets"_a.noconvert(), "lengths"_a.noconvert(), "timeout_s"_a, "is_background"_a,
           "notify"_a.none())
      .def("prepare", &Prepare, "op"_a, "remote"_a, "addresses"_a.noconvert(),
           "offsets"_a.noconvert(), "lengths"_a.noconvert(), Release())
      .def("execute_prepared", &ExecutePrepared, "prepared"_a, "timeout_s"_a, "is_background"_a,
           "notify"_a.none())
      .def("submit_prepared", &SubmitPrepared, "prepared"_a, "timeout_s"_a, "is_background"_a,
           "notify"_a.none())
      .def("take_notifications", &TakeNotifications, "limit"_a)
      .def(
          "notification_fd", [](Engine& engine) { return Unwrap(engine.NotificationFd()); },
          "A descriptor that is readable while there are notifications; owned by this.")
      .def("statistics", &Engine::Statistics, Release())
      .def("fence", &Fence, "peer_id"_a, "timeout_s"_a, Release())
      .def(
          "rotate", [](Engine& engine) { return Unwrap(engine.Rotate()); }, Release())
      .def("close", &Engine::Close, Release());
}

void BindChecksums(nb::module_& m) {
  m.def("crc32c", &Checksum, "buffer"_a, "value"_a = 0);
  m.def("crc32c_gather", &ChecksumGather, "addresses"_a.noconvert(), "lengths"_a.noconvert(),
        "value"_a = 0, nb::call_guard<ReleaseGil>());
}

}  // namespace

void bind_transfer(nb::module_& m) {
  BindMemory(m);
  BindRemote(m);
  BindStatistics(m);
  BindEngine(m);
  BindChecksums(m);
}

}  // namespace mooncake
