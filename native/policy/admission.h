// Admission: what is worth being put into the cache at all. Pure; time is an argument.
//
// Thread safety: none; one owner.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace mooncake {

struct AdmissionOptions {
  double window_s = 3600;    // how long a refused put is remembered, at least
  uint64_t keys = 1u << 20;  // that many refused puts are, at most; 4 bytes each
};

class Admission {
 public:
  virtual ~Admission() = default;

  // Whether a put may go on. It is counted as one: ask once a put. Constant time, but for a filter
  // of two bytes a key that is cleared once a window.
  virtual bool Admit(uint64_t key_hash, uint64_t bytes, double now_s) = 0;
};

// The policies by name: all, second-put. An unknown name's error lists them.
[[nodiscard]] Result<std::unique_ptr<Admission>> MakeAdmission(std::string_view name,
                                                               const AdmissionOptions& options);
std::vector<std::string> AdmissionNames();

}  // namespace mooncake
