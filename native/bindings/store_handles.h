// What the bindings of the store's client share.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>

#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "bindings/bindings.h"
#include "bindings/gil.h"
#include "store/client.h"

namespace mooncake {

using Words =
    nanobind::ndarray<const uint64_t, nanobind::ndim<1>, nanobind::c_contig, nanobind::device::cpu>;
using KeyArgument = nanobind::typed<nanobind::iterable, nanobind::any>;
using AnyList = nanobind::typed<nanobind::list, nanobind::any>;

// Something of the store that Python holds: letting go of it may ask the master or wait for a
// thread, and is done without the GIL.
template <typename T>
class Handle {
 public:
  explicit Handle(std::shared_ptr<T> held) : held_(std::move(held)) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    const ReleaseGil released;
    held_.reset();
  }

  T& operator*() const { return *held_; }
  T* operator->() const { return held_.get(); }
  const std::shared_ptr<T>& shared() const { return held_; }

 private:
  std::shared_ptr<T> held_;
};

using ClientHandle = Handle<store::Client>;
using WriterHandle = Handle<store::Writer>;

// Of a commit: false when another value has taken the key.
inline bool IsVisible(const Status& committed) {
  if (committed.code() == Code::kAlreadyExists) return false;
  Check(committed);
  return true;
}
using ReaderHandle = Handle<store::Reader>;

// A view that Python may have memoryviews of.
class ViewHandle : public Handle<store::ObjectView> {
 public:
  using Handle::Handle;
  int exports = 0;
};

// Local memory in runs, cut into one list a key: `counts` says how many runs each has; empty: one.
class Memory {
 public:
  Memory(const Words& addresses, const Words& lengths, const std::optional<Words>& counts);

  std::span<const std::span<const store::Range>> lists() const { return lists_; }
  // Throws unless there is one list for each of `count` things.
  void CheckCount(size_t count) const;

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
  const nanobind::object held_;
  std::vector<std::string_view> views_;
};

// Valid as long as the key, which is bytes or a str. Throws TypeError.
std::string_view ViewOf(nanobind::handle key);

}  // namespace mooncake
