// Where local memory is: "cpu:N", N a NUMA node, or "cuda:N", N a GPU as the CUDA driver counts.
//
// Thread safety: all functions may be called by any thread.
#pragma once

#include <cstdint>
#include <string>

namespace mooncake {

// The node of the page at `address`, which is made present if it is not; "cpu:0" where the kernel
// has no NUMA, does not say, or nothing is mapped there.
std::string CpuLocation(uint64_t address);

std::string CudaLocation(int device);

}  // namespace mooncake
