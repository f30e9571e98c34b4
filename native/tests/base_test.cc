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
