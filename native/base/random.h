// Random identities, from the kernel.
#pragma once

#include <sys/random.h>

#include <cstdint>

#include "base/check.h"

namespace mooncake {

// Uniform over all 64-bit values but 0, which means "none" wherever an identity is named.
inline uint64_t RandomId() {
  uint64_t id = 0;
  while (id == 0) {
    const ssize_t got = getrandom(&id, sizeof id, 0);
    MC_CHECK(got == sizeof id, "getrandom gave %zd bytes", got);
  }
  return id;
}

}  // namespace mooncake
