// A hash of keys for tables of this process: fast, and seeded so that nobody can choose keys that
// collide.
#pragma once

#include <cstdint>
#include <cstring>
#include <string_view>

namespace mooncake::store {

constexpr uint64_t MixWords(uint64_t left, uint64_t right) {
  const __uint128_t product = static_cast<__uint128_t>(left) * right;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

// Multiplies 16 bytes into 8 at a time, the tail padded with zeros; the length tells tails apart.
inline uint64_t HashKey(std::string_view key, uint64_t seed) {
  constexpr uint64_t kFirst = 0x9e3779b97f4a7c15, kSecond = 0xd1b54a32d192ed03;
  uint64_t hash = seed ^ MixWords(key.size() + kFirst, kSecond);
  const char* at = key.data();
  size_t left = key.size();
  uint64_t words[2];
  for (; left >= sizeof words; left -= sizeof words, at += sizeof words) {
    std::memcpy(words, at, sizeof words);
    hash = MixWords(words[0] ^ kSecond, words[1] ^ hash);
  }
  words[0] = words[1] = 0;
  if (left > 0) std::memcpy(words, at, left);
  hash = MixWords(words[0] ^ kSecond, words[1] ^ hash);
  return MixWords(hash ^ kFirst, kSecond);
}

// Of an object's number, for tables of those that have something.
constexpr uint32_t HashIndex(uint32_t index) {
  return static_cast<uint32_t>(MixWords(index + 0x9e3779b97f4a7c15, 0xd1b54a32d192ed03));
}

}  // namespace mooncake::store
