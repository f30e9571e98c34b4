// Checksums, addresses, deadlines.
#include <random>
#include <string>
#include <vector>

#include "base/crc32c.h"
#include "base/deadline.h"
#include "base/socket.h"
#include "tests/test.h"

namespace mooncake {
namespace {

TEST(InstructionAndTableAgreeAtEveryLengthAndAlignment) {
  std::mt19937_64 random(1);
  std::vector<uint8_t> data(30'000);
  for (auto& byte : data) byte = static_cast<uint8_t>(random());
  for (size_t size = 0; size < 1'700; ++size) {
    const size_t skip = size % 9;
    EXPECT(Crc32c(&data[skip], size, 7) == Crc32cByTable(&data[skip], size, 7));
  }
  for (size_t size : {12'287u, 12'288u, 12'289u, 13'056u, 24'576u, 29'990u}) {
    EXPECT(Crc32c(&data[3], size) == Crc32cByTable(&data[3], size));
  }
}

TEST(ChecksumsOfAdjacentRunsAreJoined) {
  std::mt19937_64 random(2);
  std::vector<uint8_t> data(300'000);
  for (auto& byte : data) byte = static_cast<uint8_t>(random());
  for (const size_t second : {0u, 1u, 7u, 64u, 4'095u, 65'536u, 262'144u, 299'999u, 300'000u}) {
    const size_t first = data.size() - second;
    const uint32_t a = Crc32cByTable(data.data(), first);
    const uint32_t b = Crc32cByTable(&data[0] + first, second);
    EXPECT(Crc32cCombine(a, b, second) == Crc32cByTable(data.data(), data.size()));
  }
  // Zeros are added one by one as well as 2^40 at once.
  uint32_t doubled = Crc32c("", 1);
  for (uint64_t size = 1; size < uint64_t{1} << 40; size *= 2) {
    doubled = Crc32cCombine(doubled, doubled, size);
  }
  EXPECT(Crc32cCombine(0, doubled, uint64_t{1} << 40) == doubled);
}

TEST(AddressesAreReadAndWritten) {
  const auto is = [](const char* text, const char* host, int port) {
    const auto address = ParseAddress(text);
    return address.ok() && address.value().host == host && address.value().port == port &&
           address.value().ToString() == text;
  };
  EXPECT(is("127.0.0.1:0", "127.0.0.1", 0));
  EXPECT(is("[::1]:65535", "::1", 65535));
  EXPECT(is("node-7.example:80", "node-7.example", 80));
}

TEST(BadAddressesAreRefusedByName) {
  for (const char* text : {"", ":", ":80", "host", "host:", "host:65536", "host:-1", "host:8o",
                           "::1:80", "[::1:80", "[]:80", "host:99999999999"}) {
    const auto address = ParseAddress(text);
    EXPECT(!address.ok() && address.status().code() == Code::kInvalidArgument);
    EXPECT(address.ok() || address.status().message().find(text) != std::string::npos);
  }
}

TEST(DeadlinesNeverWaitShort) {
  EXPECT(Deadline::After(-1).passed());
  EXPECT(Deadline::After(0.0 / 0.0).passed());
  EXPECT(!Deadline::After(1e300).passed());
  EXPECT(Deadline::After(10).PollMillis() >= 9'900);
  EXPECT(Deadline::After(0).PollMillis() == 0);
}

}  // namespace
}  // namespace mooncake

RUN_TESTS()
