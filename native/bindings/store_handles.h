// What Python holds of the store.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/fork.h"
#include "bindings/bindings.h"
#include "bindings/gil.h"
#include "store/client.h"

namespace mooncake {

// Something of the store that Python holds. Letting go of it may ask the master or wait for a
// thread, and is done without the GIL; in a fork of its process it is not done at all.
template <typename T>
class Handle {
 public:
  explicit Handle(std::shared_ptr<T> held) : held_(std::move(held)) {}
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() {
    if (!home_.is_here()) {
      new std::shared_ptr<T>(std::move(held_));
      return;
    }
    const ReleaseGil released;
    held_.reset();
  }

  // To use it. Throws kClosed in a fork.
  T& operator*() const {
    if (!home_.is_here()) throw StatusError{{Code::kClosed, WhyNotHere()}};
    return *held_;
  }
  T* operator->() const { return &**this; }
  // To look at what never changes, in a fork too.
  const T& peek() const { return *held_; }

  // Ends it without the GIL; in a fork it is the parent's to end.
  template <void (T::*kEnd)()>
  static void End(const Handle& self) {
    if (!self.is_here()) return;
    const ReleaseGil released;
    (self.held_.get()->*kEnd)();
  }

  bool is_here() const { return home_.is_here(); }
  std::string WhyNotHere() const {
    return "it belongs to process " + std::to_string(home_.number()) +
           ", of which this is a fork: make an engine and a client here, or spawn processes "
           "instead of forking them";
  }

 private:
  const HomeProcess home_;
  std::shared_ptr<T> held_;
};

using ClientHandle = Handle<store::Client>;
using WriterHandle = Handle<store::Writer>;
using ReaderHandle = Handle<store::Reader>;

// A view that Python may have memoryviews of.
class ViewHandle : public Handle<store::ObjectView> {
 public:
  using Handle::Handle;
  int exports = 0;
};

// Of a commit: false when another value has taken the key.
inline bool IsVisible(const Status& committed) {
  if (committed.code() == Code::kAlreadyExists) return false;
  Check(committed);
  return true;
}

}  // namespace mooncake
