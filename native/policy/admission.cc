#include "policy/admission.h"

#include "policy/registry.h"
#include "policy/second_put.h"

namespace mooncake {
namespace {

class AdmitAll final : public Admission {
 public:
  bool Admit(uint64_t, uint64_t, double) override { return true; }
};

std::unique_ptr<Admission> MakeAll(const AdmissionOptions&) { return std::make_unique<AdmitAll>(); }

std::unique_ptr<Admission> MakeSecondPut(const AdmissionOptions& options) {
  return std::make_unique<SecondPutAdmission>(options);
}

constexpr Named<std::unique_ptr<Admission>(const AdmissionOptions&)> kAdmissions[] = {
    {"all", &MakeAll},
    {"second-put", &MakeSecondPut},
};

}  // namespace

Result<std::unique_ptr<Admission>> MakeAdmission(std::string_view name,
                                                 const AdmissionOptions& options) {
  const auto* found = FindNamed(kAdmissions, name);
  if (found == nullptr) return UnknownName("admission policy", name, AdmissionNames());
  const bool is_sane =
      options.window_s > 0 && options.keys > 0 && options.keys <= SecondPutAdmission::kMaxKeys;
  if (!is_sane) {
    return Status(Code::kInvalidArgument,
                  "admission: window_s must be above 0 and keys between 1 and " +
                      std::to_string(SecondPutAdmission::kMaxKeys) + ", not " +
                      std::to_string(options.window_s) + " and " + std::to_string(options.keys));
  }
  return found->make(options);
}

std::vector<std::string> AdmissionNames() { return NamesOf(kAdmissions); }

}  // namespace mooncake
