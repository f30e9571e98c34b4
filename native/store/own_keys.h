// OwnKeys: copies of several keys, in one run of memory.
//
// Thread safety: immutable.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace mooncake::store {

class OwnKeys {
 public:
  explicit OwnKeys(std::span<const std::string_view> keys) {
    size_t size_bytes = 0;
    for (const std::string_view key : keys) size_bytes += key.size();
    bytes_.reserve(size_bytes);
    views_.reserve(keys.size());
    for (const std::string_view key : keys) {
      bytes_ += key;
      views_.emplace_back(bytes_.data() + bytes_.size() - key.size(), key.size());
    }
  }
  OwnKeys(const OwnKeys&) = delete;
  OwnKeys& operator=(const OwnKeys&) = delete;

  size_t size() const { return views_.size(); }
  std::string_view operator[](size_t index) const { return views_[index]; }

 private:
  std::string bytes_;
  std::vector<std::string_view> views_;
};

}  // namespace mooncake::store
