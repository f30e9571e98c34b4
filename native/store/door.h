// Door: beside its TCP address a master listens on an abstract Unix socket that is named after it.
// For processes of its host a question and its answer take half the time there.
//
// Thread safety: free functions over descriptors that the caller owns.
#pragma once

#include "base/fd.h"
#include "base/socket.h"
#include "base/status.h"

namespace mooncake::store {

// Listens at the door of a master that is bound to `address`.
Result<Fd> OpenDoor(const Address& address);

// A connection to the door of the master that `tcp` is connected to, when that runs in this network
// namespace and under this user; else `tcp` itself. Never waits.
Fd Nearest(Fd tcp);

}  // namespace mooncake::store
