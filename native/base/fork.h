// Forks: how often this process came out of another by fork(), counted without a system call.
//
// Thread safety: all functions may be called by any thread.
#pragma once

#include <cstdint>

namespace mooncake {

// One more in a forked child than in its parent: what was made at another count belongs to another
// process. Children of a bare clone() are not counted.
uint64_t ForkCount();

}  // namespace mooncake
