// Bindings of the store client's gets: whole batches cross, the GIL is released while they are
// under way.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include <vector>

#include "bindings/store.h"
#include "bindings/store_handles.h"
#include "bindings/store_memory.h"

namespace nb = nanobind;

namespace mooncake {
namespace {

using store::Client;
using store::Range;
using store::Reader;

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
  const Memory memory(keys.size(), addresses, capacities, counts);
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

}  // namespace

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

}  // namespace mooncake
