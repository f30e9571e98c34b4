#include "transfer/location.h"

#include <sys/syscall.h>
#include <unistd.h>

namespace mooncake {
namespace {

// Source: include/uapi/linux/mempolicy.h; get_mempolicy(2) says what both together ask.
constexpr unsigned long kNodeOfAddress = (1 << 0) | (1 << 1);  // MPOL_F_NODE | MPOL_F_ADDR

}  // namespace

std::string CpuLocation(uint64_t address) {
  int node = 0;
  const long status = syscall(SYS_get_mempolicy, &node, nullptr, 0UL, address, kNodeOfAddress);
  return "cpu:" + std::to_string(status == 0 ? node : 0);
}

std::string CudaLocation(int device) { return "cuda:" + std::to_string(device); }

}  // namespace mooncake
