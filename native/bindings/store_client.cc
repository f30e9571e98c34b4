// Bindings of the store's client: whole batches cross, the GIL is released while they are under
// way.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <deque>
#include <optional>

#include "bindings/bindings.h"
#include "bindings/gil.h"
#include "bindings/store.h"
#include "store/client.h"
#include "store/codec.h"
#include "store/registration.h"

namespace nb = nanobind;

namespace mooncake {
namespace {

using store::Client;
using store::Range;
using store::Reader;
using store::Registration;
using store::Writer;

using KeyList = nb::typed<nb::list, nb::bytes>;
using AnyList = nb::typed<nb::list, nb::any>;

using Words = nb::ndarray<const uint64_t, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

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

// Registers local memory for one call; made and dropped without the GIL, since dropping waits.
class Registrations {
 public:
  explicit Registrations(Engine& engine) : engine_(engine) {}
  Status Add(const Range& range) {
    all_.emplace_back(engine_, reinterpret_cast<const void*>(range.address), range.length);
    return all_.back().status();
  }

 private:
  Engine& engine_;
  std::deque<Registration> all_;
};

std::vector<std::string> Keys(const nb::list& keys) {
  std::vector<std::string> result;
  result.reserve(keys.size());
  for (nb::handle key : keys) {
    const auto bytes = nb::cast<nb::bytes>(key);
    result.emplace_back(bytes.c_str(), bytes.size());
  }
  return result;
}

std::vector<Range> Ranges(const Words& addresses, const Words& lengths) {
  if (addresses.size() != lengths.size()) {
    throw StatusError{{Code::kInvalidArgument, std::to_string(addresses.size()) + " addresses, " +
                                                   std::to_string(lengths.size()) +
                                                   " lengths; one length an address"}};
  }
  std::vector<Range> ranges(addresses.size());
  for (size_t at = 0; at < ranges.size(); ++at) {
    ranges[at] = {addresses.data()[at], lengths.data()[at]};
  }
  return ranges;
}

std::vector<bool> Put(Client& client, const KeyList& keys, const AnyList& values) {
  std::vector<Client::PutItem> items;
  std::deque<BufferView> views;
  std::vector<Range> ranges;
  for (const std::string& key : Keys(keys)) {
    views.emplace_back(values[items.size()], false);
    ranges.push_back(views.back().range());
    items.push_back({key, ranges.back().length, 0, 0});
  }
  const ReleaseGil released;
  Registrations registrations(client.engine());
  for (const Range& range : ranges) Check(registrations.Add(range));
  return Unwrap(client.Put(items, ranges));
}

AnyList Get(Client& client, const KeyList& keys) {
  auto names = Keys(keys);
  std::shared_ptr<Reader> reader;
  {
    const ReleaseGil released;
    reader = Unwrap(client.Open(std::move(names), false));
  }
  std::vector<nb::object> values(reader->count(), nb::none());
  std::vector<Reader::Request> requests;
  for (size_t at = 0; at < reader->count(); ++at) {
    const auto& item = reader->item(at);
    if (!item.found) continue;
    values[at] = nb::steal(PyBytes_FromStringAndSize(nullptr, item.size_bytes));
    if (!values[at].is_valid()) throw nb::python_error();
    const auto address = reinterpret_cast<uint64_t>(PyBytes_AS_STRING(values[at].ptr()));
    requests.push_back({at, {{address, item.size_bytes}}});
  }
  std::vector<bool> is_there;
  {
    const ReleaseGil released;
    Registrations registrations(client.engine());
    for (const auto& request : requests) Check(registrations.Add(request.memory[0]));
    is_there = Unwrap(reader->ReadAll(requests));
    reader->Close();
  }
  for (size_t at = 0; at < requests.size(); ++at) {
    if (!is_there[at]) values[requests[at].index] = nb::none();
  }
  AnyList result;
  for (const nb::object& value : values) result.append(value);
  return result;
}

std::optional<uint64_t> GetInto(Client& client, const nb::bytes& key, nb::handle buffer) {
  const BufferView view(buffer, true);
  const std::string name(key.c_str(), key.size());
  const ReleaseGil released;
  const auto reader = Unwrap(client.Open({name}, true));
  if (reader->count() == 0) return std::nullopt;
  const uint64_t size_bytes = reader->item(0).size_bytes;
  if (view.range().length < size_bytes) {
    throw StatusError{
        {Code::kInvalidArgument, "the buffer has " + std::to_string(view.range().length) +
                                     " bytes, the object " + std::to_string(size_bytes)}};
  }
  const Range range{view.range().address, size_bytes};
  Registrations registrations(client.engine());
  Check(registrations.Add(range));
  const Reader::Request request{0, {range}};
  if (!Unwrap(reader->ReadAll({&request, 1}))[0]) return std::nullopt;
  return size_bytes;
}

std::unique_ptr<Writer> OpenWrite(Client& client, const nb::bytes& key, uint64_t size_bytes,
                                  uint64_t part_bytes, uint32_t replicas) {
  const Client::PutItem item{{key.c_str(), key.size()}, size_bytes, part_bytes, replicas};
  const ReleaseGil released;
  auto started = Unwrap(client.StartPuts({&item, 1}));
  Check(started[0].status);
  return std::move(started[0].writer);
}

std::shared_ptr<Reader> OpenRead(Client& client, const KeyList& keys) {
  auto names = Keys(keys);
  const ReleaseGil released;
  return Unwrap(client.Open(std::move(names), true));
}

void WritePart(Writer& writer, uint64_t part, const Words& addresses, const Words& lengths) {
  const auto memory = Ranges(addresses, lengths);
  const ReleaseGil released;
  Check(writer.WritePart(part, memory));
}

bool ReadParts(Reader& reader, uint64_t part, const AnyList& pieces) {
  std::vector<Reader::Request> requests;
  for (nb::handle piece : pieces) {
    const auto [index, addresses, lengths] =
        nb::cast<std::tuple<uint64_t, nb::object, nb::object>>(piece);
    Words address_words, length_words;
    if (!nb::try_cast(addresses, address_words, false) ||
        !nb::try_cast(lengths, length_words, false)) {
      throw nb::type_error("addresses and lengths are 1-D C-contiguous arrays of uint64");
    }
    requests.push_back({index, Ranges(address_words, length_words)});
  }
  const ReleaseGil released;
  return Unwrap(reader.ReadPart(part, requests));
}

nb::bytes StatsBody(Client& client) {
  std::vector<uint8_t> body;
  {
    const ReleaseGil released;
    store::Encode(Unwrap(client.Report()), body);
  }
  return nb::bytes(reinterpret_cast<const char*>(body.data()), body.size());
}

void BindWriter(nb::module_& m) {
  nb::class_<Writer>(m, "StoreWriter", "An object that is being written.")
      .def("write_part", WritePart, nb::arg("part"), nb::arg("addresses").noconvert(),
           nb::arg("lengths").noconvert())
      .def("commit",
           [](Writer& self) {
             const ReleaseGil released;
             Check(self.Commit());
           })
      .def("abort",
           [](Writer& self) {
             const ReleaseGil released;
             self.Abort();
           })
      .def_prop_ro("part_count", &Writer::part_count)
      .def_prop_ro("copy_count", &Writer::copy_count);
}

void BindReader(nb::module_& m) {
  nb::class_<Reader>(m, "StoreReader", "Objects that are being read, under a lease.")
      .def_prop_ro("count", &Reader::count)
      .def_prop_ro("sizes",
                   [](const Reader& self) {
                     std::vector<uint64_t> sizes;
                     for (size_t at = 0; at < self.count(); ++at) {
                       sizes.push_back(self.item(at).size_bytes);
                     }
                     return sizes;
                   })
      .def("read_parts", ReadParts, nb::arg("part"), nb::arg("pieces"))
      .def("check_valid", [](const Reader& self) { Check(self.Validity()); })
      .def("close", [](Reader& self) {
        const ReleaseGil released;
        self.Close();
      });
}

void BindClient(nb::module_& m) {
  nb::class_<Client>(m, "StoreClient", "A process's use of the store.")
      .def(
          "__init__",
          [](Client* self, std::shared_ptr<Engine> engine, std::string master, uint32_t replicas,
             double timeout_s) {
            new (self) Client(std::move(engine), {std::move(master), replicas, timeout_s});
          },
          nb::arg("engine"), nb::kw_only(), nb::arg("master"), nb::arg("replicas"),
          nb::arg("timeout_s"))
      .def("put", Put, nb::arg("keys"), nb::arg("values"))
      .def("get", Get, nb::arg("keys"))
      .def("get_into", GetInto, nb::arg("key"), nb::arg("buffer"))
      .def("open_write", OpenWrite, nb::arg("key"), nb::kw_only(), nb::arg("size_bytes"),
           nb::arg("part_bytes"), nb::arg("replicas"),
           nb::sig("def open_write(self, key: bytes, *, size_bytes: int, part_bytes: int, "
                   "replicas: int) -> StoreWriter | None"))
      .def("open_read", OpenRead, nb::arg("keys"))
      .def(
          "exists",
          [](Client& self, const KeyList& keys) {
            auto names = Keys(keys);
            const ReleaseGil released;
            return Unwrap(self.Exists(std::move(names)));
          },
          nb::arg("keys"))
      .def(
          "match_prefix",
          [](Client& self, const KeyList& keys) {
            auto names = Keys(keys);
            const ReleaseGil released;
            return Unwrap(self.MatchPrefix(std::move(names)));
          },
          nb::arg("keys"))
      .def(
          "remove",
          [](Client& self, const KeyList& keys) {
            auto names = Keys(keys);
            const ReleaseGil released;
            return Unwrap(self.Remove(std::move(names)));
          },
          nb::arg("keys"))
      .def("stats", StatsBody, "Return the msgpack body of a stats answer.")
      .def_prop_ro("epoch", &Client::epoch)
      .def_prop_ro("read_counters",
                   [](const Client& self) {
                     const auto& counters = self.counters();
                     return std::tuple(counters.corrupt.load(), counters.stale.load(),
                                       counters.unreachable.load());
                   })
      .def("close", [](Client& self) {
        const ReleaseGil released;
        self.Close();
      });
}

}  // namespace

void BindStoreClient(nb::module_& m) {
  BindWriter(m);
  BindReader(m);
  BindClient(m);
}

}  // namespace mooncake
