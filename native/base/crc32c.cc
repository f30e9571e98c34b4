#include "base/crc32c.h"

#include <array>
#include <cstring>

#include "base/crc32c_fold.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#define MC_CRC_TARGET __attribute__((target("sse4.2")))
#elif defined(__aarch64__)
#include <arm_acle.h>
#include <asm/hwcap.h>
#include <sys/auxv.h>
#define MC_CRC_TARGET __attribute__((target("+crc")))
#endif

namespace mooncake {
namespace {

using crc32c::kOne;
using crc32c::kPolynomial;
using crc32c::TimesX;

constexpr std::array<std::array<uint32_t, 256>, 8> MakeTables() {
  std::array<std::array<uint32_t, 256>, 8> tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) ? kPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < 8; ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t crc = tables[k - 1][byte];
      tables[k][byte] = (crc >> 8) ^ tables[0][crc & 0xff];
    }
  }
  return tables;
}

constexpr auto kTables = MakeTables();

constexpr uint32_t Product(uint32_t a, uint32_t b) {
  uint32_t product = 0;
  for (; a != 0; a <<= 1, b = TimesX(b)) {
    if ((a & kOne) != 0) product ^= b;
  }
  return product;
}

// x^8, x^16, x^32, ...: what 1, 2, 4, ... more bytes multiply by.
constexpr std::array<uint32_t, 64> MakePowers() {
  std::array<uint32_t, 64> powers{};
  powers[0] = kOne >> 8;
  for (size_t k = 1; k < powers.size(); ++k) powers[k] = Product(powers[k - 1], powers[k - 1]);
  return powers;
}

constexpr auto kPowers = MakePowers();

uint64_t Load64(const uint8_t* data) {
  uint64_t word;
  std::memcpy(&word, data, sizeof word);
  return word;
}

#ifdef MC_CRC_TARGET

// Appending zero bytes to a message is linear in its CRC. A Shift holds that map for one number
// of zero bytes, a table for each byte of the CRC.
using Shift = std::array<std::array<uint32_t, 256>, 4>;

uint32_t Apply(const Shift& shift, uint32_t crc) {
  return shift[0][crc & 0xff] ^ shift[1][(crc >> 8) & 0xff] ^ shift[2][(crc >> 16) & 0xff] ^
         shift[3][crc >> 24];
}

Shift MakeShift(size_t zeros) {
  Shift shift{};
  for (int bit = 0; bit < 32; ++bit) {
    uint32_t image = uint32_t{1} << bit;
    for (size_t i = 0; i < zeros; ++i) image = (image >> 8) ^ kTables[0][image & 0xff];
    auto& table = shift[bit / 8];
    const size_t one = size_t{1} << (bit % 8);
    for (size_t low = 0; low < one; ++low) table[one + low] = image ^ table[low];
  }
  return shift;
}

#if defined(__x86_64__)
bool CpuHasCrc() { return __builtin_cpu_supports("sse4.2"); }
MC_CRC_TARGET inline uint64_t Step8(uint64_t crc, const uint8_t* data) {
  return _mm_crc32_u64(crc, Load64(data));
}
MC_CRC_TARGET inline uint64_t Step1(uint64_t crc, uint8_t byte) {
  return _mm_crc32_u8(static_cast<uint32_t>(crc), byte);
}
#else
bool CpuHasCrc() { return (getauxval(AT_HWCAP) & HWCAP_CRC32) != 0; }
MC_CRC_TARGET inline uint64_t Step8(uint64_t crc, const uint8_t* data) {
  return __crc32cd(static_cast<uint32_t>(crc), Load64(data));
}
MC_CRC_TARGET inline uint64_t Step1(uint64_t crc, uint8_t byte) {
  return __crc32cb(static_cast<uint32_t>(crc), byte);
}
#endif

// The instruction takes three cycles and one can start in each, so three lanes run abreast:
//   [0, lane) [lane, 2 lane) [2 lane, 3 lane)
template <size_t kLane>
MC_CRC_TARGET uint64_t ThreeLanes(const uint8_t*& data, size_t& size, uint64_t crc) {
  static const Shift shift = MakeShift(kLane);
  while (size >= 3 * kLane) {
    uint64_t second = 0;
    uint64_t third = 0;
    for (size_t i = 0; i < kLane; i += 8) {
      crc = Step8(crc, data + i);
      second = Step8(second, data + kLane + i);
      third = Step8(third, data + 2 * kLane + i);
    }
    crc = Apply(shift, static_cast<uint32_t>(crc)) ^ second;
    crc = Apply(shift, static_cast<uint32_t>(crc)) ^ third;
    data += 3 * kLane;
    size -= 3 * kLane;
  }
  return crc;
}

MC_CRC_TARGET uint32_t Crc32cByInstruction(const uint8_t* data, size_t size, uint32_t value) {
  uint64_t crc = ~value;
  crc = ThreeLanes<4096>(data, size, crc);
  crc = ThreeLanes<256>(data, size, crc);
  for (; size >= 8; size -= 8, data += 8) crc = Step8(crc, data);
  for (; size > 0; --size, ++data) crc = Step1(crc, *data);
  return ~static_cast<uint32_t>(crc);
}

#endif  // MC_CRC_TARGET

}  // namespace

uint32_t Crc32cByTable(const void* bytes, size_t size, uint32_t value) {
  auto* data = static_cast<const uint8_t*>(bytes);
  uint32_t crc = ~value;
  for (; size >= 8; size -= 8, data += 8) {
    const uint64_t word = Load64(data) ^ crc;
    crc = 0;
    for (int k = 0; k < 8; ++k) crc ^= kTables[7 - k][(word >> (8 * k)) & 0xff];
  }
  for (; size > 0; --size, ++data) crc = (crc >> 8) ^ kTables[0][(crc ^ *data) & 0xff];
  return ~crc;
}

uint32_t Crc32cCombine(uint32_t a, uint32_t b, uint64_t b_bytes) {
  for (size_t k = 0; b_bytes != 0; ++k, b_bytes >>= 1) {
    if ((b_bytes & 1) != 0) a = Product(kPowers[k], a);
  }
  return a ^ b;
}

uint32_t Crc32c(const void* data, size_t size, uint32_t crc) {
#ifdef MC_CRC_FOLDS
  if (size >= crc32c::kFoldBytes && crc32c::CpuFolds()) {
    const auto* bytes = static_cast<const uint8_t*>(data);
    const size_t folded = size / 64 * 64;
    crc = crc32c::Fold<crc32c::FoldCopy::kNone>(nullptr, bytes, folded, crc);
    return Crc32c(bytes + folded, size - folded, crc);
  }
#endif
#ifdef MC_CRC_TARGET
  static const bool has_instruction = CpuHasCrc();
  if (has_instruction) return Crc32cByInstruction(static_cast<const uint8_t*>(data), size, crc);
#endif
  return Crc32cByTable(data, size, crc);
}

}  // namespace mooncake
