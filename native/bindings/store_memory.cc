#include "bindings/store_memory.h"

#include <cstring>
#include <string>

#include "bindings/bindings.h"

namespace nb = nanobind;

namespace mooncake {
namespace {

// Values up to so long go through scratch memory: to register theirs would take longer.
constexpr uint64_t kSmallBytes = 32 << 10;

// A text is a list of texts as well, which nobody means.
void RefuseOneKey(nb::handle keys) {
  if (!nb::isinstance<nb::iterable>(keys)) throw nb::type_error("keys: a list of them is needed");
  if (!PyUnicode_Check(keys.ptr()) && !PyBytes_Check(keys.ptr())) return;
  throw nb::type_error("one key where a list of keys is needed");
}

// As the struct module writes it; machines are little-endian.
bool IsUnsigned64(const char* written) {
  if (written == nullptr) return false;  // bytes
  std::string_view format(written);
  if (format.starts_with('@') || format.starts_with('=') || format.starts_with('<')) {
    format.remove_prefix(1);
  }
  return format == "Q" || format == "L";
}

}  // namespace

bool Words::Take(nb::handle array) noexcept {
  auto view = std::make_unique<Py_buffer>();
  if (PyObject_GetBuffer(array.ptr(), view.get(), PyBUF_ND | PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    return false;
  }
  view_.reset(view.release());
  return view_->ndim == 1 && view_->itemsize == sizeof(uint64_t) && IsUnsigned64(view_->format);
}

std::vector<store::Range> Ranges(const Words& addresses, const Words& lengths) {
  if (addresses.size() != lengths.size()) {
    throw StatusError{{Code::kInvalidArgument, std::to_string(addresses.size()) + " addresses, " +
                                                   std::to_string(lengths.size()) +
                                                   " lengths; one length an address"}};
  }
  std::vector<store::Range> ranges(addresses.size());
  for (size_t at = 0; at < ranges.size(); ++at) {
    ranges[at] = {addresses.data()[at], lengths.data()[at]};
  }
  return ranges;
}

Memory::Memory(size_t things, const Words& addresses, const Words& lengths,
               const std::optional<Words>& counts)
    : ranges_(Ranges(addresses, lengths)) {
  std::span<const store::Range> rest(ranges_);
  const bool is_single = !counts && things == 1;
  const size_t lists = is_single ? 1 : counts ? counts->size() : ranges_.size();
  if (lists != things) {
    throw StatusError{{Code::kInvalidArgument,
                       std::to_string(things) + " keys, memory for " + std::to_string(lists)}};
  }
  for (size_t at = 0; at < lists; ++at) {
    const uint64_t count = is_single ? ranges_.size() : counts ? counts->data()[at] : 1;
    if (count > rest.size()) throw nb::value_error("more runs of memory are counted than given");
    lists_.push_back(rest.first(count));
    rest = rest.subspan(count);
  }
  if (!rest.empty()) throw nb::value_error("more runs of memory are given than counted");
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

KeyList::KeyList(nb::handle keys) {
  RefuseOneKey(keys);
  held_ = nb::steal(PySequence_Tuple(keys.ptr()));
  if (!held_.is_valid()) throw nb::python_error();
  const size_t count = PyTuple_GET_SIZE(held_.ptr());
  views_.reserve(count);
  for (size_t at = 0; at < count; ++at) {
    views_.push_back(ViewOf(PyTuple_GET_ITEM(held_.ptr(), at)));
  }
}

BufferView::BufferView(nb::handle object, bool is_writable) {
  const int flags = is_writable ? PyBUF_WRITABLE : PyBUF_SIMPLE;
  if (PyObject_GetBuffer(object.ptr(), &view_, flags) != 0) throw nb::python_error();
}

store::Range Borrowed::Source(const store::Range& memory) {
  if (memory.length > kSmallBytes) return Register(memory);
  const store::Range copy = Take(memory.length);
  std::memcpy(reinterpret_cast<void*>(copy.address), reinterpret_cast<const void*>(memory.address),
              memory.length);
  return copy;
}

store::Range Borrowed::Target(const store::Range& memory) {
  if (memory.length > kSmallBytes) return Register(memory);
  return Take(memory.length);
}

void Borrowed::Deliver(const store::Range& target, const store::Range& memory) {
  if (target.address == memory.address) return;
  std::memcpy(reinterpret_cast<void*>(memory.address),
              reinterpret_cast<const void*>(target.address), memory.length);
}

store::Range Borrowed::Take(uint64_t length) {
  uint8_t* const taken = arena_.Take(length);
  Check(arena_.status());
  return {reinterpret_cast<uint64_t>(taken), length};
}

store::Range Borrowed::Register(const store::Range& memory) {
  registrations_.emplace_back(context_->session.engine(),
                              reinterpret_cast<const void*>(memory.address), memory.length);
  Check(registrations_.back().status());
  return memory;
}

}  // namespace mooncake
