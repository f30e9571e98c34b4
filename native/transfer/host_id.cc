#include "transfer/host_id.h"

#include <sys/stat.h>

#include <fstream>

#include "base/random.h"

namespace mooncake {

std::string ReadHostId() {
  std::ifstream file("/proc/sys/kernel/random/boot_id");
  std::string boot;
  struct stat network{};
  if (!(file >> boot) || stat("/proc/self/ns/net", &network) != 0) {
    return "alone-" + std::to_string(RandomId());  // shares with nobody
  }
  return boot + "-" + std::to_string(network.st_ino);
}

}  // namespace mooncake
