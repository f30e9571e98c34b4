// Bindings of what a store client asks about objects.
#include <nanobind/nanobind.h>
#include <nanobind/stl/vector.h>

#include <vector>

#include "bindings/store.h"
#include "bindings/store_handles.h"
#include "bindings/store_memory.h"
#include "store/codec.h"

namespace nb = nanobind;

namespace mooncake {
namespace {

using store::Client;

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

}  // namespace

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

}  // namespace mooncake
