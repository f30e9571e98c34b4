// Bindings of the store's client: whole batches cross, the GIL is released while they are under
// way.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <deque>

#include "bindings/store.h"
#include "bindings/store_handles.h"
#include "store/codec.h"
#include "store/registration.h"

namespace nb = nanobind;

namespace mooncake {

Memory::Memory(const Words& addresses, const Words& lengths, const std::optional<Words>& counts) {
  if (addresses.size() != lengths.size()) {
    throw StatusError{{Code::kInvalidArgument, std::to_string(addresses.size()) + " addresses, " +
                                                   std::to_string(lengths.size()) +
                                                   " lengths; one length an address"}};
  }
  ranges_.reserve(addresses.size());
  for (size_t at = 0; at < addresses.size(); ++at) {
    ranges_.push_back({addresses.data()[at], lengths.data()[at]});
  }
  std::span<const store::Range> rest(ranges_);
  const size_t lists = counts ? counts->size() : ranges_.size();
  for (size_t at = 0; at < lists; ++at) {
    const uint64_t count = counts ? counts->data()[at] : 1;
    if (count > rest.size()) throw nb::value_error("more runs of memory are counted than given");
    lists_.push_back(rest.first(count));
    rest = rest.subspan(count);
  }
  if (!rest.empty()) throw nb::value_error("more runs of memory are given than counted");
}

void Memory::CheckCount(size_t count) const {
  if (lists_.size() == count) return;
  throw StatusError{{Code::kInvalidArgument,
                     std::to_string(count) + " keys, memory for " + std::to_string(lists_.size())}};
}

std::string_view ViewOf(nb::handle key) {
  if (PyBytes_Check(key.ptr())) {
    return {PyBytes_AS_STRING(key.ptr()), static_cast<size_t>(PyBytes_GET_SIZE(key.ptr()))};
  }
  if (!PyUnicode_Check(key.ptr())) {
    const nb::str type = nb::type_name(key.type());
    throw nb::type_error(("a key is bytes or str, not " + std::string(type.c_str())).c_str());
  }
  Py_ssize_t size = 0;
  const char* const bytes = PyUnicode_AsUTF8AndSize(key.ptr(), &size);
  if (bytes == nullptr) throw nb::python_error();
  return {bytes, static_cast<size_t>(size)};
}

KeyList::KeyList(nb::handle keys) : held_(nb::steal(PySequence_Tuple(keys.ptr()))) {
  if (!held_.is_valid()) throw nb::python_error();
  const size_t count = PyTuple_GET_SIZE(held_.ptr());
  views_.reserve(count);
  for (size_t at = 0; at < count; ++at) {
    views_.push_back(ViewOf(PyTuple_GET_ITEM(held_.ptr(), at)));
  }
}

namespace {

using store::Arena;
using store::Client;
using store::Range;
using store::Reader;
using store::Registration;

// Values up to so long go through scratch memory: to register theirs would take longer.
constexpr uint64_t kSmallBytes = 32 << 10;

// A contiguous view of an object's bytes, which keeps the object alive. Made and dropped with the
// GIL held.
class BufferView {
 public:
  BufferView(nb::handle object, bool is_writable) {
    const int flags = is_writable ? PyBUF_WRITABLE : PyBUF_SIMPLE;
    if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nb::python_error();
  }
  ~BufferView() { PyBuffer_Release(&view_); }
  BufferView(const BufferView&) = delete;
  BufferView& operator=(const BufferView&) = delete;

  Range range() const {
    return {reinterpret_cast<uint64_t>(view_.buf), static_cast<uint64_t>(view_.len)};
  }

 private:
  Py_buffer view_;
};

// Memory of callers that is not registered, made usable for one call. Made and dropped without the
// GIL, since dropping waits.
class Borrowed {
 public:
  explicit Borrowed(Client& client) : context_(client.context()), arena_(context_->scratch) {}

  // Where the engine may read what `memory` holds now.
  Range Source(const Range& memory) {
    if (memory.length > kSmallBytes) return Register(memory);
    uint8_t* const copy = arena_.Take(memory.length);
    std::memcpy(copy, reinterpret_cast<const void*>(memory.address), memory.length);
    return {reinterpret_cast<uint64_t>(copy), memory.length};
  }
  // Where the engine may write what is to go to `memory` in the end: see Deliver.
  Range Target(const Range& memory) {
    if (memory.length > kSmallBytes) return Register(memory);
    return {reinterpret_cast<uint64_t>(arena_.Take(memory.length)), memory.length};
  }
  static void Deliver(const Range& target, const Range& memory) {
    if (target.address == memory.address) return;
    std::memcpy(reinterpret_cast<void*>(memory.address),
                reinterpret_cast<const void*>(target.address), memory.length);
  }

 private:
  Range Register(const Range& memory) {
    registrations_.emplace_back(context_->session.engine(),
                                reinterpret_cast<const void*>(memory.address), memory.length);
    Check(registrations_.back().status());
    return memory;
  }

  const std::shared_ptr<store::Context> context_;
  Arena arena_;
  std::deque<Registration> registrations_;
};

// --- puts ---

// Of each key: parent, depth, group, group size. None: neither chain nor group.
using Links = std::optional<AnyList>;
using AnyTuple = nb::typed<nb::tuple, nb::any, nb::ellipsis>;

std::vector<Client::PutItem> Items(const KeyList& keys, const Links& links) {
  if (links && links->size() != keys.size()) {
    throw nb::value_error("one link a key is needed");
  }
  std::vector<Client::PutItem> items;
  items.reserve(keys.size());
  for (const std::string_view key : keys.views()) items.push_back({.key = key});
  for (size_t at = 0; links && at < items.size(); ++at) {
    const nb::object link = (*links)[at];
    if (link.is_none()) continue;
    const auto fields = nb::cast<nb::tuple>(link);
    items[at].parent = ViewOf(fields[0]);
    items[at].depth = nb::cast<uint32_t>(fields[1]);
    items[at].group = ViewOf(fields[2]);
    items[at].group_size = nb::cast<uint32_t>(fields[3]);
  }
  return items;
}

// How a batch of puts went, for Python.
struct Report {
  std::vector<uint8_t> outcomes;
  std::vector<std::tuple<size_t, Code, std::string>> failures;
  store::Space space;
};

Report ReportOf(const Client::PutResult& result) {
  Report report{{}, {}, result.space};
  for (const Client::Done& done : result.items) {
    report.outcomes.push_back(static_cast<uint8_t>(done.outcome));
    if (done.status.ok()) continue;
    report.failures.emplace_back(report.outcomes.size() - 1, done.status.code(),
                                 done.status.message());
  }
  return report;
}

nb::object SpaceOf(const store::Space& space) {
  return nb::make_tuple(space.capacity, space.used, space.evictable, space.pinned,
                        space.quarantined, space.largest_free_extent);
}

AnyTuple Answer(const Report& report) {
  const auto& outcomes = report.outcomes;
  return nb::cast<AnyTuple>(
      nb::make_tuple(nb::bytes(reinterpret_cast<const char*>(outcomes.data()), outcomes.size()),
                     nb::cast(report.failures), SpaceOf(report.space)));
}

AnyTuple Put(const ClientHandle& client, const KeyArgument& key_list, const AnyList& values,
             const store::PutOptions& options, const Links& links) {
  const KeyList keys(key_list);
  auto items = Items(keys, links);
  if (values.size() != items.size()) throw nb::value_error("one value a key is needed");
  std::deque<BufferView> views;
  for (size_t at = 0; at < items.size(); ++at) {
    items[at].size_bytes = views.emplace_back(values[at], false).range().length;
  }
  Report report;
  {
    const ReleaseGil released;
    Borrowed borrowed(*client);
    std::vector<Range> ranges;
    ranges.reserve(views.size());
    std::vector<std::span<const Range>> memory;
    for (const BufferView& view : views) {
      ranges.push_back(borrowed.Source(view.range()));
      memory.emplace_back(&ranges.back(), 1);
    }
    report = ReportOf(Unwrap(client->Put(items, memory, options)));
  }
  return Answer(report);
}

AnyTuple PutFrom(const ClientHandle& client, const KeyArgument& key_list, const Words& addresses,
                 const Words& lengths, const std::optional<Words>& counts,
                 const store::PutOptions& options, const Links& links) {
  const KeyList keys(key_list);
  auto items = Items(keys, links);
  const Memory memory(addresses, lengths, counts);
  memory.CheckCount(items.size());
  for (size_t at = 0; at < items.size(); ++at) {
    items[at].size_bytes = store::TotalLength(memory.lists()[at]);
  }
  Report report;
  {
    const ReleaseGil released;
    report = ReportOf(Unwrap(client->Put(items, memory.lists(), options)));
  }
  return Answer(report);
}

AnyTuple OpenWrite(const ClientHandle& client, const KeyArgument& key_list,
                   const std::vector<uint64_t>& sizes, uint64_t part_bytes,
                   const store::PutOptions& options, const Links& links) {
  const KeyList keys(key_list);
  auto items = Items(keys, links);
  if (sizes.size() != items.size()) throw nb::value_error("one size a key is needed");
  for (size_t at = 0; at < items.size(); ++at) {
    items[at].size_bytes = sizes[at];
    items[at].part_bytes = part_bytes;
  }
  Client::Puts puts;
  {
    const ReleaseGil released;
    puts = Unwrap(client->StartPuts(items, options));
  }
  Client::PutResult result{{}, puts.space};
  nb::list writers;
  for (Client::Started& put : puts.items) {
    result.items.push_back({put.outcome, put.status, 0});
    if (put.writer == nullptr) {
      writers.append(nb::none());
    } else {
      std::shared_ptr<store::Writer> writer(std::move(put.writer));
      writers.append(nb::cast(new WriterHandle(std::move(writer)), nb::rv_policy::take_ownership));
    }
  }
  const auto report = ReportOf(result);
  return nb::cast<AnyTuple>(nb::make_tuple(writers, Answer(report)));
}

// Raises the first error, after all have been tried.
void CheckAll(const std::vector<Status>& statuses) {
  for (const Status& status : statuses) Check(status);
}

std::vector<store::Writer*> Writers(const AnyList& handles) {
  std::vector<store::Writer*> writers;
  for (nb::handle handle : handles) writers.push_back(&**nb::cast<const WriterHandle*>(handle));
  return writers;
}

void WriteRanges(const ClientHandle&, const AnyList& handles, const std::vector<uint64_t>& offsets,
                 const Words& addresses, const Words& lengths, const std::optional<Words>& counts) {
  const auto writers = Writers(handles);
  const Memory memory(addresses, lengths, counts);
  memory.CheckCount(writers.size());
  if (offsets.size() != writers.size()) throw nb::value_error("one offset a writer is needed");
  const ReleaseGil released;
  std::vector<Client::WriteRequest> requests;
  for (size_t at = 0; at < writers.size(); ++at) {
    requests.push_back({writers[at], offsets[at], memory.lists()[at]});
  }
  CheckAll(Client::Write(requests));
}

std::vector<bool> CommitAll(const ClientHandle& client, const AnyList& handles) {
  const auto writers = Writers(handles);
  const ReleaseGil released;
  std::vector<bool> visible;
  for (const Status& status : client->Commit(writers)) visible.push_back(IsVisible(status));
  return visible;
}

// --- gets ---

AnyList Get(const ClientHandle& client, const KeyArgument& key_list) {
  const KeyList keys(key_list);
  std::shared_ptr<Reader> reader;
  {
    const ReleaseGil released;
    reader = Unwrap(client->Open(keys.views(), false));
  }
  std::vector<nb::object> values(reader->count(), nb::none());
  std::vector<Range> memory(reader->count());
  std::vector<size_t> found;
  for (size_t at = 0; at < reader->count(); ++at) {
    const auto& item = reader->item(at);
    if (!item.found) continue;
    found.push_back(at);
    values[at] = nb::steal(PyBytes_FromStringAndSize(nullptr, item.shape.size_bytes));
    if (!values[at].is_valid()) throw nb::python_error();
    const auto address = reinterpret_cast<uint64_t>(PyBytes_AS_STRING(values[at].ptr()));
    memory[at] = {address, item.shape.size_bytes};
  }
  std::vector<bool> is_there;
  {
    const ReleaseGil released;
    Borrowed borrowed(*client);
    std::vector<Range> targets;
    targets.reserve(found.size());
    std::vector<Reader::Request> requests;
    for (const size_t at : found) {
      targets.push_back(borrowed.Target(memory[at]));
      requests.push_back({at, 0, {&targets.back(), 1}});
    }
    is_there = Unwrap(reader->Read(requests));
    for (size_t at = 0; at < found.size(); ++at) {
      if (is_there[at]) Borrowed::Deliver(targets[at], memory[found[at]]);
    }
    reader.reset();
  }
  for (size_t at = 0; at < found.size(); ++at) {
    if (!is_there[at]) values[found[at]] = nb::none();
  }
  AnyList result;
  for (const nb::object& value : values) result.append(value);
  return result;
}

using Size = std::optional<uint64_t>;

// Bytes [offset, offset + length) of one object, or all from `offset` on.
nb::object GetRange(const ClientHandle& client, nb::handle key, uint64_t offset, Size length) {
  const std::string_view name = ViewOf(key);
  std::shared_ptr<Reader> reader;
  {
    const ReleaseGil released;
    reader = Unwrap(client->Open({name}, true));
  }
  if (reader->LeadingCount() == 0) return nb::none();
  const uint64_t size_bytes = reader->item(0).shape.size_bytes;
  if (offset > size_bytes || length.value_or(0) > size_bytes - offset) {
    throw StatusError{{Code::kInvalidArgument, std::to_string(length.value_or(0)) +
                                                   " bytes at offset " + std::to_string(offset) +
                                                   " lie outside the object of " +
                                                   std::to_string(size_bytes) + " bytes"}};
  }
  const uint64_t bytes = length.value_or(size_bytes - offset);
  auto value = nb::steal(PyBytes_FromStringAndSize(nullptr, bytes));
  if (!value.is_valid()) throw nb::python_error();
  const Range memory{reinterpret_cast<uint64_t>(PyBytes_AS_STRING(value.ptr())), bytes};
  bool is_there = false;
  {
    const ReleaseGil released;
    Borrowed borrowed(*client);
    const Range target = borrowed.Target(memory);
    const Reader::Request request{0, offset, {&target, 1}};
    is_there = Unwrap(reader->Read({&request, 1}))[0];
    if (is_there) Borrowed::Deliver(target, memory);
    reader.reset();
  }
  return is_there ? nb::object(value) : nb::none();
}

Size GetInto(const ClientHandle& client, nb::handle key, nb::handle buffer) {
  const BufferView view(buffer, true);
  const std::string_view name = ViewOf(key);
  const ReleaseGil released;
  const auto reader = Unwrap(client->Open({name}, true));
  if (reader->LeadingCount() == 0) return std::nullopt;
  const uint64_t size_bytes = reader->item(0).shape.size_bytes;
  if (view.range().length < size_bytes) {
    throw StatusError{
        {Code::kInvalidArgument, "the buffer has " + std::to_string(view.range().length) +
                                     " bytes, the object " + std::to_string(size_bytes)}};
  }
  const Range memory{view.range().address, size_bytes};
  Borrowed borrowed(*client);
  const Range target = borrowed.Target(memory);
  const Reader::Request request{0, 0, {&target, 1}};
  if (!Unwrap(reader->Read({&request, 1}))[0]) return std::nullopt;
  Borrowed::Deliver(target, memory);
  return size_bytes;
}

// The first `bytes` of `memory`.
std::vector<Range> Front(std::span<const Range> memory, uint64_t bytes) {
  std::vector<Range> front;
  for (const Range& range : memory) {
    const uint64_t length = std::min(range.length, bytes);
    if (length > 0) front.push_back({range.address, length});
    bytes -= length;
  }
  return front;
}

std::vector<Size> GetIntoMemory(const ClientHandle& client, const KeyArgument& key_list,
                                const Words& addresses, const Words& capacities,
                                const std::optional<Words>& counts) {
  const KeyList keys(key_list);
  const Memory memory(addresses, capacities, counts);
  memory.CheckCount(keys.size());
  const ReleaseGil released;
  const auto reader = Unwrap(client->Open(keys.views(), false));
  std::vector<std::vector<Range>> targets;
  targets.reserve(reader->count());
  std::vector<Reader::Request> requests;
  for (size_t at = 0; at < reader->count(); ++at) {
    const auto& item = reader->item(at);
    if (!item.found) continue;
    const uint64_t capacity = store::TotalLength(memory.lists()[at]);
    if (capacity < item.shape.size_bytes) {
      throw StatusError{{Code::kInvalidArgument, "the memory of key " + std::to_string(at) +
                                                     " has " + std::to_string(capacity) +
                                                     " bytes, the object " +
                                                     std::to_string(item.shape.size_bytes)}};
    }
    targets.push_back(Front(memory.lists()[at], item.shape.size_bytes));
    requests.push_back({at, 0, targets.back()});
  }
  const auto is_there = Unwrap(reader->Read(requests));
  std::vector<Size> sizes(reader->count());
  for (size_t at = 0; at < requests.size(); ++at) {
    const uint64_t index = requests[at].index;
    if (is_there[at]) sizes[index] = reader->item(index).shape.size_bytes;
  }
  return sizes;
}

nb::object OpenRead(const ClientHandle& client, const KeyArgument& key_list, bool stop_at_miss) {
  const KeyList keys(key_list);
  std::shared_ptr<Reader> reader;
  {
    const ReleaseGil released;
    reader = Unwrap(client->Open(keys.views(), stop_at_miss));
  }
  return nb::cast(new ReaderHandle(std::move(reader)), nb::rv_policy::take_ownership);
}

nb::object OpenView(const ClientHandle& client, nb::handle key) {
  const std::string_view name = ViewOf(key);
  std::shared_ptr<store::ObjectView> view;
  {
    const ReleaseGil released;
    view = Unwrap(client->OpenView(name));
  }
  if (view == nullptr) return nb::none();
  return nb::cast(new ViewHandle(std::move(view)), nb::rv_policy::take_ownership);
}

// --- questions ---

template <auto kMethod>
auto AskOfKeys(const ClientHandle& client, const KeyArgument& key_list) {
  const KeyList keys(key_list);
  const ReleaseGil released;
  return Unwrap(((*client).*kMethod)(keys.views()));
}

std::vector<bool> SetPin(const ClientHandle& client, const KeyArgument& key_list, uint8_t pin,
                         double soft_pin_s) {
  const KeyList keys(key_list);
  const ReleaseGil released;
  return Unwrap(client->SetPin(keys.views(), static_cast<store::Pin>(pin), soft_pin_s));
}

template <typename M>
nb::bytes BodyOf(const M& message) {
  std::vector<uint8_t> body;
  store::Encode(message, body);
  return nb::bytes(reinterpret_cast<const char*>(body.data()), body.size());
}

std::vector<nb::bytes> Describe(const ClientHandle& client, const KeyArgument& key_list) {
  const KeyList keys(key_list);
  std::vector<store::Objects> answers;
  {
    const ReleaseGil released;
    answers = Unwrap(client->Describe(keys.views()));
  }
  std::vector<nb::bytes> bodies;
  for (const store::Objects& answer : answers) bodies.push_back(BodyOf(answer));
  return bodies;
}

nb::bytes List(const ClientHandle& client, nb::handle prefix, uint64_t cursor, uint32_t limit) {
  const std::string_view start = ViewOf(prefix);
  store::Objects page;
  {
    const ReleaseGil released;
    page = Unwrap(client->List(start, cursor, limit));
  }
  return BodyOf(page);
}

nb::bytes StatsBody(const ClientHandle& client) {
  store::Stats stats;
  {
    const ReleaseGil released;
    stats = Unwrap(client->Report());
  }
  return BodyOf(stats);
}

void BindOptions(nb::module_& m) {
  nb::class_<store::PutOptions>(m, "StorePutOptions", "How objects are to be kept.")
      .def(
          "__init__",
          [](store::PutOptions* self, uint32_t replicas, bool is_strict, bool is_upsert,
             uint8_t pin, double soft_pin_s, bool has_checksums,
             std::vector<std::string> preferred) {
            new (self) store::PutOptions{
                replicas,   is_strict,     is_upsert,           static_cast<store::Pin>(pin),
                soft_pin_s, has_checksums, std::move(preferred)};
          },
          nb::kw_only(), nb::arg("replicas"), nb::arg("is_strict"), nb::arg("is_upsert"),
          nb::arg("pin"), nb::arg("soft_pin_s"), nb::arg("has_checksums"), nb::arg("preferred"));
}

std::shared_ptr<Client> NewClient(std::shared_ptr<Engine> engine, std::string master,
                                  uint32_t replicas, double timeout_s, bool checksums) {
  return std::make_shared<Client>(
      std::move(engine), Client::Options{std::move(master), replicas, timeout_s, checksums});
}

void BindPuts(nb::class_<ClientHandle>& client) {
  client
      .def("put", Put, nb::arg("keys"), nb::arg("values"), nb::arg("options"),
           nb::arg("links").none(),
           "Return (an outcome a key, [(index, code, message) of those that failed], space).")
      .def("put_from", PutFrom, nb::arg("keys"), nb::arg("addresses").noconvert(),
           nb::arg("lengths").noconvert(), nb::arg("counts").noconvert().none(), nb::arg("options"),
           nb::arg("links").none(), "The same from registered memory: `counts` runs a key.")
      .def("open_write", OpenWrite, nb::arg("keys"), nb::arg("sizes"), nb::arg("part_bytes"),
           nb::arg("options"), nb::arg("links").none(),
           "Return (a StoreWriter or None a key, what `put` returns).")
      .def("write_ranges", WriteRanges, nb::arg("writers"), nb::arg("offsets"),
           nb::arg("addresses").noconvert(), nb::arg("lengths").noconvert(),
           nb::arg("counts").noconvert().none())
      .def("commit", CommitAll, nb::arg("writers"));
}

void BindGets(nb::class_<ClientHandle>& client) {
  client.def("get", Get, nb::arg("keys"))
      .def("get_range", GetRange, nb::arg("key"), nb::arg("offset"), nb::arg("length").none(),
           nb::sig("def get_range(self, key: bytes | str, offset: int, length: int | None) "
                   "-> bytes | None"))
      .def("get_into", GetInto, nb::arg("key"), nb::arg("buffer"))
      .def("get_into_memory", GetIntoMemory, nb::arg("keys"), nb::arg("addresses").noconvert(),
           nb::arg("capacities").noconvert(), nb::arg("counts").noconvert().none())
      .def("open_read", OpenRead, nb::arg("keys"), nb::arg("stop_at_miss"),
           nb::sig("def open_read(self, keys: collections.abc.Iterable[bytes | str], stop_at_miss: "
                   "bool) -> StoreReader"))
      .def("open_view", OpenView, nb::arg("key"),
           nb::sig("def open_view(self, key: bytes | str) -> StoreView | None"));
}

void BindQuestions(nb::class_<ClientHandle>& client) {
  client.def("exists", AskOfKeys<&Client::Exists>, nb::arg("keys"))
      .def("match_prefix", AskOfKeys<&Client::MatchPrefix>, nb::arg("keys"))
      .def("remove", AskOfKeys<&Client::Remove>, nb::arg("keys"))
      .def("set_pin", SetPin, nb::arg("keys"), nb::arg("pin"), nb::arg("soft_pin_s"))
      .def("describe", Describe, nb::arg("keys"), "Return msgpack bodies, for the keys in order.")
      .def("list", List, nb::arg("prefix"), nb::arg("cursor"), nb::arg("limit"),
           "Return the msgpack body of one page.")
      .def("stats", StatsBody, "Return the msgpack body of a stats answer.");
}

}  // namespace

void BindStoreClient(nb::module_& m) {
  BindOptions(m);
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
      .def_prop_ro("epoch", [](const ClientHandle& self) { return self->epoch(); })
      .def_prop_ro("read_counters",
                   [](const ClientHandle& self) {
                     const auto& counters = self->counters();
                     return std::tuple(counters.corrupt.load(), counters.stale.load(),
                                       counters.unreachable.load());
                   })
      .def("close", [](const ClientHandle& self) {
        const ReleaseGil released;
        self->Close();
      });
  BindPuts(client);
  BindGets(client);
  BindQuestions(client);
}

}  // namespace mooncake
