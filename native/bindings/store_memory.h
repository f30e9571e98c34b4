// Arguments of the store's bindings: keys, and memory that is registered or not.
#pragma once

#include <Python.h>
#include <nanobind/nanobind.h>

#include <deque>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "store/client.h"
#include "store/registration.h"

namespace mooncake {

using KeyArgument = nanobind::typed<nanobind::object, nanobind::any>;
using AnyList = nanobind::typed<nanobind::list, nanobind::any>;

// Unsigned 64-bit integers in a buffer of Python's, which stays as it is meanwhile: an array("Q"),
// say. Two of them cost a call 0.2 us less than two of nb::ndarray. Made and dropped with the GIL
// held.
class Words {
 public:
  // False: it exports no contiguous 1-D buffer of them.
  bool Take(nanobind::handle array) noexcept;

  const uint64_t* data() const { return static_cast<const uint64_t*>(view_->buf); }
  size_t size() const { return static_cast<size_t>(view_->shape[0]); }

 private:
  struct Release {
    void operator()(Py_buffer* view) const {
      PyBuffer_Release(view);
      delete view;
    }
  };
  std::unique_ptr<Py_buffer, Release> view_;  // of which exporters may keep the address
};

// Runs of local memory. Throws unless there is one length an address.
std::vector<store::Range> Ranges(const Words& addresses, const Words& lengths);

// Local memory in runs, cut into one list for each of so many things: `counts` says how many runs
// each has; none: one, and a single thing has all. Throws what does not fit together.
class Memory {
 public:
  Memory(size_t things, const Words& addresses, const Words& lengths,
         const std::optional<Words>& counts);

  std::span<const std::span<const store::Range>> lists() const { return lists_; }

 private:
  std::vector<store::Range> ranges_;
  std::vector<std::span<const store::Range>> lists_;
};

// Views of the keys of a call. Each is bytes or a str, which stands for its UTF-8; whatever becomes
// of what they were given in, they stay. Made and dropped with the GIL held.
class KeyList {
 public:
  explicit KeyList(nanobind::handle keys);

  const std::vector<std::string_view>& views() const { return views_; }
  size_t size() const { return views_.size(); }

 private:
  nanobind::object held_;
  std::vector<std::string_view> views_;
};

// Valid as long as the key, which is bytes or a str. Throws TypeError.
std::string_view ViewOf(nanobind::handle key);

// A contiguous view of an object's bytes, which keeps the object alive. Made and dropped with the
// GIL held.
class BufferView {
 public:
  BufferView(nanobind::handle object, bool is_writable);
  ~BufferView() { PyBuffer_Release(&view_); }
  BufferView(const BufferView&) = delete;
  BufferView& operator=(const BufferView&) = delete;

  store::Range range() const {
    return {reinterpret_cast<uint64_t>(view_.buf), static_cast<uint64_t>(view_.len)};
  }

 private:
  Py_buffer view_;
};

// Memory of callers that is not registered, made usable for one call; throws when it cannot be.
// Made and dropped without the GIL, since dropping waits.
class Borrowed {
 public:
  explicit Borrowed(store::Client& client)
      : context_(client.context()), arena_(context_->scratch) {}

  // Where the engine may read what `memory` holds now.
  store::Range Source(const store::Range& memory);
  // Where the engine may write what is to go to `memory` in the end: see Deliver.
  store::Range Target(const store::Range& memory);
  static void Deliver(const store::Range& target, const store::Range& memory);

 private:
  store::Range Take(uint64_t length);
  store::Range Register(const store::Range& memory);

  const std::shared_ptr<store::Context> context_;
  store::Arena arena_;
  std::deque<store::Registration> registrations_;
};

}  // namespace mooncake

namespace nanobind::detail {

template <>
struct type_caster<mooncake::Words> {
  NB_TYPE_CASTER(mooncake::Words, const_name("object"))
  bool from_python(handle source, uint8_t, cleanup_list*) noexcept { return value.Take(source); }
};

}  // namespace nanobind::detail
