// Who can share memory with this process.
#pragma once

#include <string>

namespace mooncake {

// Equal iff two processes run on one kernel and see the same abstract Unix sockets: the boot's id
// and the network namespace's.
std::string ReadHostId();

}  // namespace mooncake
