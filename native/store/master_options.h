// What a master is told at its start.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "policy/admission.h"

namespace mooncake::store {

struct MasterOptions {
  uint64_t epoch = 0;       // random, of this start
  double client_ttl_s = 3;  // silence after which a session ends
  double lease_s = 5;       // how long a lease lives unless it is renewed
  std::string eviction = "lru";
  std::string admission = "all";
  std::string placement = "free-ratio-first";
  uint64_t stripe_bytes = 64ull << 20;  // a larger object is cut into stripes of about this size
  uint64_t seed = 0;                    // of the hash of keys, and of placement at random
  AdmissionOptions admission_options{};
  bool repairs = true;           // objects that have lost copies get others
  double hot_gets_per_s = 0;     // of one object, from which on it gets further copies; 0: never
  uint32_t hot_replicas = 2;     // copies that it may then have in all
  double heat_half_life_s = 10;  // after which a lookup counts half
  // Of one message, at most; all else that may take long is cut in proportion. 2,000 take a
  // millisecond or so.
  uint32_t step_evictions = 2000;
  uint32_t max_sessions = 65'536;  // further clients are refused
};

// kInvalidArgument, which says what there is, for a name that is not known.
Status Validate(const MasterOptions& options);

}  // namespace mooncake::store
