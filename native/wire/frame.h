// Frames: what every connection of this project carries.
//
//   0        2         3      4                8                    16
//   | magic  | version | type | body length u32 | request id u64    | body ...
//
// Little endian. An answer repeats the request id of its question. What a type means and what its
// body holds is for the protocol (store or transfer) to say.
//
// Thread safety: pure.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/status.h"

namespace mooncake {

inline constexpr uint16_t kFrameMagic = 0x4d43;  // "CM" on the wire
inline constexpr uint8_t kFrameVersion = 1;
inline constexpr uint32_t kFrameHeaderBytes = 16;
inline constexpr uint32_t kFrameBodyMax = 64u << 20;

struct FrameHeader {
  uint8_t type = 0;
  uint32_t body_bytes = 0;
  uint64_t request_id = 0;
};

using FrameHeaderBytes = std::array<uint8_t, kFrameHeaderBytes>;

// REQUIRES: header.body_bytes <= kFrameBodyMax.
FrameHeaderBytes EncodeFrameHeader(const FrameHeader& header);

// kWire when magic or version are not ours or the body is longer than kFrameBodyMax.
Result<FrameHeader> DecodeFrameHeader(std::span<const uint8_t, kFrameHeaderBytes> bytes);

// Makes place for a frame's header at the end of `out`, and gives where the frame begins. Its body
// is appended next; EndFrame then writes the header. REQUIRES: the body is of at most kFrameBodyMax
// bytes.
size_t BeginFrame(std::vector<uint8_t>& out);
void EndFrame(std::vector<uint8_t>& out, size_t begin, uint8_t type, uint64_t request_id);

}  // namespace mooncake
