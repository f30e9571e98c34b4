// Registration: local memory that the engine may touch while this lives.
//
// Thread safety: a value with one owner. The memory must outlive it.
#pragma once

#include <cstdint>
#include <utility>

#include "transfer/engine.h"

namespace mooncake::store {

class Registration {
 public:
  Registration(Engine& engine, const void* data, uint64_t size_bytes)
      : engine_(engine), address_(reinterpret_cast<uint64_t>(data)), size_bytes_(size_bytes) {
    if (size_bytes_ > 0) status_ = engine_.RegisterBuffer(address_, size_bytes_);
  }
  ~Registration() {
    if (size_bytes_ > 0 && status_.ok()) (void)engine_.UnregisterBuffer(address_, size_bytes_);
  }
  Registration(const Registration&) = delete;
  Registration& operator=(const Registration&) = delete;

  const Status& status() const { return status_; }

 private:
  Engine& engine_;
  const uint64_t address_;
  const uint64_t size_bytes_;
  Status status_;
};

}  // namespace mooncake::store
