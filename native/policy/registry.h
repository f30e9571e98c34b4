// Variants by name: what a registry of policies is made of.
#pragma once

#include <algorithm>
#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace mooncake {

template <typename Make>
struct Named {
  std::string_view name;
  Make* make;
};

template <typename Make, size_t kCount>
const Named<Make>* FindNamed(const Named<Make> (&all)[kCount], std::string_view name) {
  const auto* end = all + kCount;
  const auto* found = std::find_if(all, end, [name](const auto& one) { return one.name == name; });
  return found == end ? nullptr : found;
}

template <typename Make, size_t kCount>
std::vector<std::string> NamesOf(const Named<Make> (&all)[kCount]) {
  std::vector<std::string> names;
  for (const auto& one : all) names.emplace_back(one.name);
  return names;
}

inline Status UnknownName(const std::string& what, std::string_view name,
                          const std::vector<std::string>& known) {
  std::string message = what + " '" + std::string(name) + "' is not known; there are: ";
  for (const auto& one : known) message += (&one == known.data() ? "" : ", ") + one;
  return {Code::kInvalidArgument, std::move(message)};
}

}  // namespace mooncake
