// Bindings of the store client's puts: whole batches cross, the GIL is released while they are
// under way.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <deque>
#include <vector>

#include "bindings/store.h"
#include "bindings/store_handles.h"
#include "bindings/store_memory.h"

namespace nb = nanobind;

namespace mooncake {
namespace {

using store::Client;
using store::Range;

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

// Which items of a batch have failed, and why.
using Failures = std::vector<std::tuple<size_t, Code, std::string>>;

// How a batch of puts went, for Python.
struct Report {
  std::vector<uint8_t> outcomes;
  Failures failures;
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

// Only who hears of a failure asks for it.
nb::object SpaceOf(const Report& report) {
  if (report.failures.empty()) return nb::tuple();
  const store::Space& space = report.space;
  return nb::make_tuple(space.capacity, space.used, space.evictable, space.pinned,
                        space.quarantined, space.largest_free_extent);
}

AnyTuple Answer(const Report& report) {
  const auto& outcomes = report.outcomes;
  return nb::cast<AnyTuple>(
      nb::make_tuple(nb::bytes(reinterpret_cast<const char*>(outcomes.data()), outcomes.size()),
                     nb::cast(report.failures), SpaceOf(report)));
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
    report = ReportOf(client->Put(items, memory, options));
  }
  return Answer(report);
}

AnyTuple PutFrom(const ClientHandle& client, const KeyArgument& key_list, const Words& addresses,
                 const Words& lengths, const std::optional<Words>& counts,
                 const store::PutOptions& options, const Links& links) {
  const KeyList keys(key_list);
  auto items = Items(keys, links);
  const Memory memory(items.size(), addresses, lengths, counts);
  for (size_t at = 0; at < items.size(); ++at) {
    items[at].size_bytes = store::TotalLength(memory.lists()[at]);
  }
  Report report;
  {
    const ReleaseGil released;
    report = ReportOf(client->Put(items, memory.lists(), options));
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
  const Memory memory(writers.size(), addresses, lengths, counts);
  if (offsets.size() != writers.size()) throw nb::value_error("one offset a writer is needed");
  const ReleaseGil released;
  std::vector<Client::WriteRequest> requests;
  for (size_t at = 0; at < writers.size(); ++at) {
    requests.push_back({writers[at], offsets[at], memory.lists()[at]});
  }
  CheckAll(Client::Write(requests));
}

std::tuple<std::vector<bool>, Failures> CommitAll(const ClientHandle& client,
                                                  const AnyList& handles) {
  const auto writers = Writers(handles);
  const ReleaseGil released;
  std::vector<bool> visible;
  Failures failures;
  for (const Status& status : client->Commit(writers)) {
    const bool is_failure = !status.ok() && status.code() != Code::kAlreadyExists;
    if (is_failure) failures.emplace_back(visible.size(), status.code(), status.message());
    visible.push_back(status.ok());
  }
  return {std::move(visible), std::move(failures)};
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

}  // namespace

void BindPuts(nb::module_& m, nb::class_<ClientHandle>& client) {
  BindOptions(m);
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
      .def("commit", CommitAll, nb::arg("writers"),
           "Return (whether each is visible, [(index, code, message) of those that failed]).");
}

}  // namespace mooncake
