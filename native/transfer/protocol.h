// What engines say to each other: frames (wire/frame.h) over TCP, and over a Unix socket of
// packets.
//
//   TCP   Hello -> HelloReply            first on every connection
//         Open -> OpenReply              is there such a segment, and what is it like
//         Read -> ReadReply              pieces -> their bytes
//         Write -> WriteReply            pieces and their bytes -> they are in memory
//         CloseLane -> LaneClosed        another connection of this caller moves no byte any more;
//                                        also when there is none of that id
//         Notify -> NotifyReply          a note -> it is in the queue, once however often it was
//                                        said under one number
//         Echo -> EchoReply              the same bytes
//   Unix  Hello -> HelloReply
//         Map -> MapReply                with a descriptor of the memory file, or with the address
//                                        of memory that was lent
//         View -> ViewReply              what that handle gave is in use until Release, even if the
//                                        caller is fenced
//         Release                        nothing touches what that handle gave any more
//         Bye                            it touches nothing any more and never will again
//         Fenced, SegmentGone <-         from the owner, at any time
//         Notify -> NotifyReply          raw bytes -> they are in the queue
//   both  anything -> Error
//
// Bodies are msgpack arrays, but those of Notify, and of Read and Write: a batch is the hot path.
// Theirs is
//
//   0            8         12        16                      16 + 16 count
//   | segment id | count u32 | 0 u32 | count x (offset, length) | bytes of the pieces (Write only)
//
// Thread safety: pure.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "transfer/types.h"
#include "wire/frame.h"

namespace mooncake {

enum class Message : uint8_t {
  kHello = 1,
  kHelloReply = 2,
  kOpen = 3,
  kOpenReply = 4,
  kRead = 5,
  kReadReply = 6,
  kWrite = 7,
  kWriteReply = 8,
  kError = 9,
  kMap = 10,
  kMapReply = 11,
  kRelease = 12,
  kBye = 13,
  kFenced = 14,
  kSegmentGone = 15,
  kCloseLane = 16,
  kLaneClosed = 17,
  kView = 18,
  kViewReply = 19,
  kNotify = 20,
  kNotifyReply = 21,
  kEcho = 22,
  kEchoReply = 23,
};

using Bytes = std::vector<uint8_t>;

// A request carries at most this much, so that answers flow while a large batch is still sent, and
// one connection never holds the server's thread for long.
inline constexpr uint32_t kRequestPieces = 512;
inline constexpr uint64_t kRequestBytes = 16u << 20;
inline constexpr uint32_t kBatchPrefixBytes = 16;
inline constexpr uint32_t kPieceBytes = 16;
inline constexpr uint32_t kControlBytes = 16384;  // the longest body of any other message
inline constexpr uint32_t kEchoBytes = 1u << 20;  // the longest body of an Echo
inline constexpr size_t kEndpointsMax = 64;       // of one engine
inline constexpr size_t kUnixNameBytes = 100;     // more does not fit an abstract address
inline constexpr size_t kSegmentNameBytes = 255;

struct Hello {
  uint64_t peer_id = 0;             // of the caller; what fences name
  uint64_t expected_engine_id = 0;  // whom the caller wants to reach; 0: whoever is there
  uint64_t lane_id = 0;             // random; what CloseLane names this connection by
};

struct HelloReply {
  uint64_t engine_id = 0;  // random; of this engine as an owner, for as long as it lives
  std::string host_id;
  std::string unix_name;               // abstract; empty: none
  std::vector<std::string> endpoints;  // host:port, all that it listens on
};

// A segment by its id or, when that is 0, by its name.
struct SegmentRef {
  uint64_t id = 0;
  std::string name;
};

struct NumberedNote {
  uint64_t number = 0;  // random
  std::string data;
};

struct OpenReply {
  uint64_t segment_id = 0;
  uint64_t size_bytes = 0;
  bool is_read_only = false;
};

struct Map {
  uint64_t handle = 0;  // the caller's name for this access; Release repeats it
  uint64_t segment_id = 0;
  bool is_writable = false;
};

struct MapReply {
  OpenReply segment;
  uint64_t address = 0;     // where the owner has it; 0: it is a memory file, which comes along
  uint64_t start_time = 0;  // of the owner's process, in ticks; with its number, its identity
};

Bytes Encode(const Hello& hello);
Bytes Encode(const HelloReply& reply);
Bytes Encode(const SegmentRef& ref);
Bytes Encode(const NumberedNote& note);  // the number, and the bytes as they are
Bytes Encode(const OpenReply& reply);
Bytes Encode(const Map& map);
Bytes Encode(const MapReply& reply);
Bytes EncodeNumber(uint64_t number);  // View, Release, SegmentGone, CloseLane
Bytes EncodeError(const Status& status);

// kWire when the body is not exactly what Encode makes.
Result<Hello> DecodeHello(std::span<const uint8_t> body);
Result<HelloReply> DecodeHelloReply(std::span<const uint8_t> body);
Result<SegmentRef> DecodeSegmentRef(std::span<const uint8_t> body);
Result<NumberedNote> DecodeNote(std::span<const uint8_t> body);
Result<OpenReply> DecodeOpenReply(std::span<const uint8_t> body);
Result<Map> DecodeMap(std::span<const uint8_t> body);
Result<MapReply> DecodeMapReply(std::span<const uint8_t> body);
Result<uint64_t> DecodeNumber(std::span<const uint8_t> body);
// The error that is in it, or kWire; also for what only this side can say of its own arguments:
// there it means that nothing has moved.
Status DecodeError(std::span<const uint8_t> body);

// Header and body in one piece; the header counts `payload_bytes` more that follow.
Bytes Frame(Message type, uint64_t request_id, std::span<const uint8_t> body,
            uint64_t payload_bytes = 0);

// Header, prefix and pieces of a Read or Write request; the bytes of a Write follow.
Bytes EncodeBatch(Message type, uint64_t request_id, uint64_t segment_id,
                  std::span<const Piece> pieces);
uint64_t TotalBytes(std::span<const Piece> pieces);

struct BatchPrefix {
  uint64_t segment_id = 0;
  uint32_t count = 0;
};

// kWire when the count is larger than kRequestPieces.
Result<BatchPrefix> DecodeBatchPrefix(std::span<const uint8_t> bytes);

// Pieces with their addresses left 0. kWire when they sum to more than kRequestBytes.
// REQUIRES: bytes.size() is a multiple of kPieceBytes.
Result<std::vector<Piece>> DecodePieces(std::span<const uint8_t> bytes);

}  // namespace mooncake
