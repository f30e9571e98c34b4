// Forks: how often this process came out of another by fork(), counted without a system call.
//
// Thread safety: all functions may be called by any thread.
#pragma once

#include <cstdint>

namespace mooncake {

// One more in a forked child than in its parent: what was made at another count belongs to another
// process. Children of a bare clone() are not counted.
uint64_t ForkCount();

// The process in which something was made. In a fork of it the threads are missing, locks may be
// held for ever, and sockets are the parent's: there the thing is neither to be used nor to be
// destroyed.
//
// Thread safety: immutable.
class HomeProcess {
 public:
  HomeProcess();

  bool is_here() const { return ForkCount() == fork_count_; }
  int number() const { return number_; }

 private:
  const int number_;
  const uint64_t fork_count_;
};

}  // namespace mooncake
