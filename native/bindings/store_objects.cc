// Bindings of what a store client opens: writers, readers and views.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/vector.h>

#include "bindings/store.h"
#include "bindings/store_handles.h"
#include "bindings/store_memory.h"

namespace nb = nanobind;

namespace mooncake {
namespace {

using store::Client;
using store::Range;
using store::Reader;

void WritePart(const WriterHandle& writer, uint64_t part, const Words& addresses,
               const Words& lengths) {
  const auto memory = Ranges(addresses, lengths);
  const ReleaseGil released;
  Check(writer->WritePart(part, memory));
}

void Write(const WriterHandle& writer, uint64_t offset, const Words& addresses,
           const Words& lengths) {
  const auto memory = Ranges(addresses, lengths);
  const ReleaseGil released;
  Check(writer->Write(offset, memory));
}

// Runs of several objects: (index, addresses, lengths) or (index, offset, addresses, lengths).
class Pieces {
 public:
  Pieces(const AnyList& pieces, bool has_offsets) {
    memory_.reserve(pieces.size());
    for (nb::handle piece : pieces) {
      const auto fields = nb::cast<nb::tuple>(piece);
      const size_t count = has_offsets ? 4 : 3;
      if (fields.size() != count) throw nb::type_error("a piece has too many or too few fields");
      Words addresses, lengths;
      if (!nb::try_cast(fields[count - 2], addresses, false) ||
          !nb::try_cast(fields[count - 1], lengths, false)) {
        throw nb::type_error("addresses and lengths are 1-D C-contiguous arrays of uint64");
      }
      uint64_t index = 0, offset = 0;
      if (!nb::try_cast(fields[0], index) || (has_offsets && !nb::try_cast(fields[1], offset))) {
        throw nb::type_error("an index or an offset is not an integer from 0 to 2**64 - 1");
      }
      memory_.push_back(Ranges(addresses, lengths));
      requests_.push_back({index, offset, memory_.back()});
    }
  }

  const std::vector<Reader::Request>& requests() const { return requests_; }

 private:
  std::vector<std::vector<Range>> memory_;
  std::vector<Reader::Request> requests_;
};

bool ReadParts(const ReaderHandle& reader, uint64_t part, const AnyList& pieces) {
  const Pieces wanted(pieces, false);
  const ReleaseGil released;
  return Unwrap(reader->ReadPart(part, wanted.requests()));
}

std::vector<bool> ReadRanges(const ReaderHandle& reader, const AnyList& pieces) {
  const Pieces wanted(pieces, true);
  const ReleaseGil released;
  return Unwrap(reader->Read(wanted.requests()));
}

std::vector<std::optional<uint64_t>> Sizes(const ReaderHandle& reader) {
  std::vector<std::optional<uint64_t>> sizes(reader->count());
  for (size_t at = 0; at < sizes.size(); ++at) {
    const Reader::Item& item = reader->item(at);
    if (item.found) sizes[at] = item.shape.size_bytes;
  }
  return sizes;
}

int ExportView(PyObject* self, Py_buffer* buffer, int flags) {
  auto& view = *nb::inst_ptr<ViewHandle>(self);
  if (!view.is_here()) {
    PyErr_SetString(PyExc_ValueError, view.WhyNotHere().c_str());
    return -1;
  }
  // An empty buffer has an address like any other.
  static char nothing = 0;
  void* const data =
      view->size_bytes() > 0 ? const_cast<uint8_t*>(view->data()) : static_cast<void*>(&nothing);
  const auto size_bytes = static_cast<Py_ssize_t>(view->size_bytes());
  const int failed = PyBuffer_FillInfo(buffer, self, data, size_bytes, 1, flags);
  view.exports += failed == 0;
  return failed;
}

void ReleaseView(PyObject* self, Py_buffer*) { --nb::inst_ptr<ViewHandle>(self)->exports; }

PyType_Slot view_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(ExportView)},
                            {Py_bf_releasebuffer, reinterpret_cast<void*>(ReleaseView)},
                            {0, nullptr}};

void BindWriter(nb::module_& m) {
  nb::class_<WriterHandle>(m, "StoreWriter", "An object that is being written.")
      .def("write_part", WritePart, nb::arg("part"), nb::arg("addresses").noconvert(),
           nb::arg("lengths").noconvert())
      .def("write", Write, nb::arg("offset"), nb::arg("addresses").noconvert(),
           nb::arg("lengths").noconvert())
      .def("commit",
           [](const WriterHandle& self) {
             const ReleaseGil released;
             return IsVisible(self->Commit());
           })
      .def("abort", WriterHandle::End<&store::Writer::Abort>)
      .def_prop_ro("size_bytes",
                   [](const WriterHandle& self) { return self.peek().shape().size_bytes; })
      .def_prop_ro("part_count",
                   [](const WriterHandle& self) { return self.peek().shape().part_count(); })
      .def_prop_ro("copy_count", [](const WriterHandle& self) { return self->copy_count(); });
}

void BindReader(nb::module_& m) {
  nb::class_<ReaderHandle>(m, "StoreReader", "Objects that are being read, under a lease.")
      .def_prop_ro("leading_count", [](const ReaderHandle& self) { return self->LeadingCount(); })
      .def("sizes", Sizes, "Bytes of each object that was looked up; None: it is not there.")
      .def("read_parts", ReadParts, nb::arg("part"), nb::arg("pieces"))
      .def("read_ranges", ReadRanges, nb::arg("pieces"))
      .def("check_valid", [](const ReaderHandle& self) { Check(self->Validity()); })
      .def("close", ReaderHandle::End<&Reader::Close>);
}

void BindView(nb::module_& m) {
  nb::class_<ViewHandle>(m, "StoreView", nb::type_slots(view_slots),
                         "An object's bytes, read-only, where they are or as a copy.")
      .def_prop_ro("size_bytes", [](const ViewHandle& self) { return self.peek().size_bytes(); })
      .def_prop_ro("is_copy", [](const ViewHandle& self) { return self.peek().is_copy(); })
      .def(
          "view",
          [](nb::handle_t<ViewHandle> self) {
            return nb::steal<nb::object>(PyMemoryView_FromObject(self.ptr()));
          },
          nb::sig("def view(self) -> memoryview"))
      .def_ro("exports", &ViewHandle::exports, "How many memoryviews of it there are.");
}

}  // namespace

void BindStoreObjects(nb::module_& m) {
  BindWriter(m);
  BindReader(m);
  BindView(m);
}

}  // namespace mooncake
