// Scatter: a list of memory runs that are sent or received one after the other, and how far it got.
//
// Thread safety: one thread at a time. The memory is the caller's.
#pragma once

#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "base/fd.h"

namespace mooncake {

class Scatter {
 public:
  void Clear() {
    runs_.clear();
    at_ = 0;
  }
  void Add(const void* data, uint64_t size) {
    if (size > 0) runs_.push_back({const_cast<void*>(data), static_cast<size_t>(size)});
  }
  bool done() const { return at_ == runs_.size(); }

  // One sendmsg or recvmsg on a non-blocking socket: its result, and errno with it.
  ssize_t Send(const Fd& socket) {
    msghdr message = Header();
    return Advance(sendmsg(socket.get(), &message, MSG_NOSIGNAL));
  }
  ssize_t Receive(const Fd& socket) {
    msghdr message = Header();
    return Advance(recvmsg(socket.get(), &message, 0));
  }

 private:
  msghdr Header() {
    msghdr message{};
    message.msg_iov = runs_.data() + at_;
    message.msg_iovlen = std::min<size_t>(runs_.size() - at_, 1024);  // IOV_MAX
    return message;
  }

  ssize_t Advance(ssize_t count) {
    size_t left = count > 0 ? static_cast<size_t>(count) : 0;
    while (left > 0) {
      iovec& run = runs_[at_];
      const size_t step = std::min(left, run.iov_len);
      run.iov_base = static_cast<char*>(run.iov_base) + step;
      run.iov_len -= step;
      left -= step;
      if (run.iov_len == 0) ++at_;
    }
    return count;
  }

  std::vector<iovec> runs_;
  size_t at_ = 0;
};

}  // namespace mooncake
