// How much memory this process may still take.
#pragma once

#include <cstdint>
#include <string>

namespace mooncake {

struct MemoryLimit {
  uint64_t available_bytes = UINT64_MAX;
  std::string source = "nothing";  // what sets it, for messages
};

// The smallest of what the machine has available and what each enclosing control group leaves.
// Anonymous memory files are not refused by the kernel when memory runs out: the process, or
// another, is killed. So this is asked first.
MemoryLimit ReadMemoryLimit();

}  // namespace mooncake
