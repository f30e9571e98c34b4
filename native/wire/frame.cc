#include "wire/frame.h"

#include <algorithm>
#include <string>
#include <string_view>

#include "base/check.h"
#include "wire/bytes.h"

namespace mooncake {

FrameHeaderBytes EncodeFrameHeader(const FrameHeader& header) {
  MC_CHECK(header.body_bytes <= kFrameBodyMax, "%u bytes", header.body_bytes);
  FrameHeaderBytes bytes;
  StoreLittle<uint16_t>(&bytes[0], kFrameMagic);
  bytes[2] = kFrameVersion;
  bytes[3] = header.type;
  StoreLittle<uint32_t>(&bytes[4], header.body_bytes);
  StoreLittle<uint64_t>(&bytes[8], header.request_id);
  return bytes;
}

Result<FrameHeader> DecodeFrameHeader(std::span<const uint8_t, kFrameHeaderBytes> bytes) {
  const auto refuse = [](const char* what, uint64_t is, uint64_t expected) {
    return Status(Code::kWire, std::string("frame with ") + what + " " + std::to_string(is) +
                                   "; expected " + std::to_string(expected));
  };
  const std::string_view first(reinterpret_cast<const char*>(bytes.data()), 4);
  if (first == "HTTP") return Status(Code::kWire, "HTTP speaks there, this is not its port");
  const uint16_t magic = LoadLittle<uint16_t>(&bytes[0]);
  if (magic != kFrameMagic) return refuse("magic", magic, kFrameMagic);
  if (bytes[2] != kFrameVersion) return refuse("version", bytes[2], kFrameVersion);
  const uint32_t body_bytes = LoadLittle<uint32_t>(&bytes[4]);
  if (body_bytes > kFrameBodyMax) return refuse("body bytes", body_bytes, kFrameBodyMax);
  return FrameHeader{bytes[3], body_bytes, LoadLittle<uint64_t>(&bytes[8])};
}

size_t BeginFrame(std::vector<uint8_t>& out) {
  const size_t begin = out.size();
  out.resize(begin + kFrameHeaderBytes);
  return begin;
}

void EndFrame(std::vector<uint8_t>& out, size_t begin, uint8_t type, uint64_t request_id) {
  const size_t body_bytes = out.size() - begin - kFrameHeaderBytes;
  MC_CHECK(body_bytes <= kFrameBodyMax, "%zu bytes", body_bytes);
  const auto header = EncodeFrameHeader({type, static_cast<uint32_t>(body_bytes), request_id});
  std::copy(header.begin(), header.end(), &out[begin]);
}

}  // namespace mooncake
