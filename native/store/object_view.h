// ObjectView: all bytes of one object, read in place where one run of shared memory holds them,
// else a private copy; verified either way before it is given out.
//
// Thread safety: immutable; destroying it by any thread.
// Ownership: one that is no copy pins the object, which is not evicted and whose memory is not used
// for another one until the view is gone: also when the session has ended (the master then waits
// until this process's peer id is fenced, and that until the view is gone).
#pragma once

#include <cstdint>
#include <memory>

#include "store/reader.h"
#include "transfer/view.h"

namespace mooncake::store {

class ObjectView : public std::enable_shared_from_this<ObjectView> {
 public:
  // Of the only object of `reader`, which holds a pin of it. Null: a miss.
  static Result<std::shared_ptr<ObjectView>> Make(std::shared_ptr<Context> context,
                                                  std::shared_ptr<Reader> reader);

  ObjectView(std::shared_ptr<Context> context, ScratchPool::Scratch copy, uint64_t size_bytes)
      : context_(std::move(context)),
        copy_(std::move(copy)),
        data_(copy_.data()),
        size_bytes_(size_bytes),
        is_copy_(true) {}
  ObjectView(std::shared_ptr<Reader> pin, std::shared_ptr<View> view)
      : pin_(std::move(pin)),
        view_(std::move(view)),
        data_(view_->data() + kHeaderBytes),
        size_bytes_(view_->size_bytes() - kHeaderBytes) {}

  const uint8_t* data() const { return data_; }
  uint64_t size_bytes() const { return size_bytes_; }
  bool is_copy() const { return is_copy_; }

 private:
  const std::shared_ptr<Context> context_;  // outlives what is below
  const std::shared_ptr<Reader> pin_;
  const std::shared_ptr<View> view_;
  const ScratchPool::Scratch copy_;
  const uint8_t* const data_;
  const uint64_t size_bytes_;
  const bool is_copy_ = false;
};

}  // namespace mooncake::store
