// second-put: admits a key when it is put for the second time within the window. Two Bloom filters
// of 16 bits and four probes a key: the new one takes what was refused, and replaces the old one
// when it is full or a window old. A refused put is so remembered for one to two windows, or for
// as long as `keys` others come. One in 200 keys or fewer is admitted at its first put by mistake.
#pragma once

#include "policy/admission.h"

namespace mooncake {

class SecondPutAdmission final : public Admission {
 public:
  static constexpr uint64_t kMaxKeys = 1u << 22;

  // REQUIRES: options.window_s > 0 and 0 < options.keys <= kMaxKeys.
  explicit SecondPutAdmission(const AdmissionOptions& options);

  bool Admit(uint64_t key_hash, uint64_t bytes, double now_s) override;

 private:
  using Filter = std::vector<uint64_t>;

  static bool Has(const Filter& filter, uint64_t hash);
  static void Add(Filter& filter, uint64_t hash);
  void Forget(double now_s);
  void Rotate(double since_s);

  AdmissionOptions options_;
  Filter new_, old_;
  uint64_t added_ = 0;  // to new_
  double since_s_ = 0;  // of new_
};

}  // namespace mooncake
