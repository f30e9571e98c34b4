#include "bench/pattern.h"

#include <algorithm>
#include <cstring>

namespace mooncake {
namespace {

constexpr uint64_t kWord = sizeof(uint64_t);

// The finaliser of SplitMix64: one to one.
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

uint64_t Word(uint64_t seed, uint64_t index) {
  const uint64_t complement = seed % 2 == 0 ? 0 : ~uint64_t{0};
  return Mix((seed / 2) * 0x9e3779b97f4a7c15 + index) ^ complement;
}

uint8_t Byte(uint64_t seed, uint64_t offset) {
  return static_cast<uint8_t>(Word(seed, offset / kWord) >> (8 * (offset % kWord)));
}

// Bytes before the first whole word.
uint64_t Head(uint64_t size, uint64_t offset) {
  return std::min(size, (kWord - offset % kWord) % kWord);
}

}  // namespace

void FillPattern(void* data, uint64_t size, uint64_t seed, uint64_t offset) {
  auto* bytes = static_cast<uint8_t*>(data);
  uint64_t at = 0;
  for (const uint64_t head = Head(size, offset); at < head; ++at) {
    bytes[at] = Byte(seed, offset + at);
  }
  for (uint64_t index = (offset + at) / kWord; at + kWord <= size; at += kWord, ++index) {
    const uint64_t word = Word(seed, index);
    std::memcpy(bytes + at, &word, kWord);
  }
  for (; at < size; ++at) bytes[at] = Byte(seed, offset + at);
}

uint64_t CheckPattern(const void* data, uint64_t size, uint64_t seed, uint64_t offset) {
  const auto* bytes = static_cast<const uint8_t*>(data);
  const auto is_wrong = [&](uint64_t at) { return bytes[at] != Byte(seed, offset + at); };
  uint64_t at = 0;
  for (const uint64_t head = Head(size, offset); at < head; ++at) {
    if (is_wrong(at)) return at;
  }
  for (uint64_t index = (offset + at) / kWord; at + kWord <= size; at += kWord, ++index) {
    uint64_t word;
    std::memcpy(&word, bytes + at, kWord);
    if (word != Word(seed, index)) break;
  }
  while (at < size && !is_wrong(at)) ++at;
  return at;
}

}  // namespace mooncake
