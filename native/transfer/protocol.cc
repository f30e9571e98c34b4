#include "transfer/protocol.h"

#include "base/check.h"
#include "wire/bytes.h"
#include "wire/msgpack.h"

namespace mooncake {
namespace {

Status Malformed(const char* what) { return Status(Code::kWire, std::string("malformed ") + what); }

bool ReadEndpoints(MsgpackReader& reader, std::vector<std::string>& endpoints) {
  size_t count = 0;
  if (!reader.Array(count) || count > kEndpointsMax) return false;
  std::string_view endpoint;
  while (endpoints.size() < count && reader.Str(endpoint)) endpoints.emplace_back(endpoint);
  return endpoints.size() == count;
}

}  // namespace

Bytes Encode(const Hello& hello) {
  Bytes body;
  MsgpackWriter(body)
      .Array(3)
      .Uint(hello.peer_id)
      .Uint(hello.expected_engine_id)
      .Uint(hello.lane_id);
  return body;
}

Bytes Encode(const HelloReply& reply) {
  Bytes body;
  MsgpackWriter writer(body);
  writer.Array(4).Uint(reply.engine_id).Str(reply.host_id).Str(reply.unix_name);
  writer.Array(reply.endpoints.size());
  for (const std::string& endpoint : reply.endpoints) writer.Str(endpoint);
  return body;
}

Bytes Encode(const SegmentRef& ref) {
  Bytes body;
  MsgpackWriter(body).Array(2).Uint(ref.id).Str(ref.name);
  return body;
}

Bytes Encode(const NumberedNote& note) {
  Bytes body(sizeof note.number + note.data.size());
  StoreLittle<uint64_t>(body.data(), note.number);
  std::copy(note.data.begin(), note.data.end(), body.begin() + sizeof note.number);
  return body;
}

Bytes Encode(const OpenReply& reply) {
  Bytes body;
  MsgpackWriter writer(body);
  writer.Array(3).Uint(reply.segment_id).Uint(reply.size_bytes).Bool(reply.is_read_only);
  return body;
}

Bytes Encode(const Map& map) {
  Bytes body;
  MsgpackWriter(body).Array(3).Uint(map.handle).Uint(map.segment_id).Bool(map.is_writable);
  return body;
}

Bytes Encode(const MapReply& reply) {
  Bytes body;
  MsgpackWriter writer(body);
  writer.Array(5).Uint(reply.segment.segment_id).Uint(reply.segment.size_bytes);
  writer.Bool(reply.segment.is_read_only).Uint(reply.address).Uint(reply.start_time);
  return body;
}

Bytes EncodeNumber(uint64_t number) {
  Bytes body;
  MsgpackWriter(body).Array(1).Uint(number);
  return body;
}

Bytes EncodeError(const Status& status) {
  Bytes body;
  const std::string_view message = std::string_view(status.message()).substr(0, 1024);
  MsgpackWriter(body).Array(2).Uint(static_cast<uint64_t>(status.code())).Str(message);
  return body;
}

Result<Hello> DecodeHello(std::span<const uint8_t> body) {
  MsgpackReader reader(body);
  Hello hello;
  reader.ArrayOf(3) && reader.Uint(hello.peer_id) && reader.Uint(hello.expected_engine_id) &&
      reader.Uint(hello.lane_id);
  if (!reader.done() || hello.peer_id == 0) return Malformed("hello");
  return hello;
}

Result<HelloReply> DecodeHelloReply(std::span<const uint8_t> body) {
  MsgpackReader reader(body);
  HelloReply reply;
  std::string_view host_id;
  std::string_view unix_name;
  reader.ArrayOf(4) && reader.Uint(reply.engine_id) && reader.Str(host_id) && reader.Str(unix_name);
  const bool has_endpoints = ReadEndpoints(reader, reply.endpoints);
  const bool is_valid = reply.engine_id != 0 && unix_name.size() <= kUnixNameBytes;
  if (!reader.done() || !has_endpoints || !is_valid) return Malformed("answer to hello");
  reply.host_id = host_id;
  reply.unix_name = unix_name;
  return reply;
}

Result<SegmentRef> DecodeSegmentRef(std::span<const uint8_t> body) {
  MsgpackReader reader(body);
  SegmentRef ref;
  std::string_view name;
  reader.ArrayOf(2) && reader.Uint(ref.id) && reader.Str(name);
  const bool names_one = (ref.id != 0) != !name.empty();
  if (!reader.done() || !names_one || name.size() > kSegmentNameBytes) {
    return Malformed("name of a segment");
  }
  ref.name = name;
  return ref;
}

Result<NumberedNote> DecodeNote(std::span<const uint8_t> body) {
  NumberedNote note;
  if (body.size() < sizeof note.number) return Malformed("notification");
  note.number = LoadLittle<uint64_t>(body.data());
  note.data.assign(body.begin() + sizeof note.number, body.end());
  if (note.number == 0) return Malformed("notification");
  return note;
}

Result<OpenReply> DecodeOpenReply(std::span<const uint8_t> body) {
  MsgpackReader reader(body);
  OpenReply reply;
  reader.ArrayOf(3) && reader.Uint(reply.segment_id) && reader.Uint(reply.size_bytes) &&
      reader.Bool(reply.is_read_only);
  if (!reader.done()) return Malformed("answer to open");
  return reply;
}

Result<Map> DecodeMap(std::span<const uint8_t> body) {
  MsgpackReader reader(body);
  Map map;
  reader.ArrayOf(3) && reader.Uint(map.handle) && reader.Uint(map.segment_id) &&
      reader.Bool(map.is_writable);
  if (!reader.done()) return Malformed("map request");
  return map;
}

Result<MapReply> DecodeMapReply(std::span<const uint8_t> body) {
  MsgpackReader reader(body);
  MapReply reply;
  reader.ArrayOf(5) && reader.Uint(reply.segment.segment_id) &&
      reader.Uint(reply.segment.size_bytes) && reader.Bool(reply.segment.is_read_only) &&
      reader.Uint(reply.address) && reader.Uint(reply.start_time);
  if (!reader.done()) return Malformed("answer to map");
  return reply;
}

Result<uint64_t> DecodeNumber(std::span<const uint8_t> body) {
  MsgpackReader reader(body);
  uint64_t number = 0;
  reader.ArrayOf(1) && reader.Uint(number);
  if (!reader.done()) return Malformed("message of one number");
  return number;
}

Status DecodeError(std::span<const uint8_t> body) {
  MsgpackReader reader(body);
  uint8_t code = 0;
  std::string_view message;
  reader.ArrayOf(2) && reader.UintAs(code) && reader.Str(message);
  if (!reader.done() || code == 0 || code > static_cast<uint8_t>(Code::kNotNotified)) {
    return Malformed("error");
  }
  const auto said = static_cast<Code>(code);
  const bool is_ours = said == Code::kInvalidArgument || said == Code::kBufferNotRegistered ||
                       said == Code::kCancelled;
  return Status(is_ours ? Code::kWire : said, std::string(message));
}

Bytes Frame(Message type, uint64_t request_id, std::span<const uint8_t> body,
            uint64_t payload_bytes) {
  const auto body_bytes = static_cast<uint32_t>(body.size() + payload_bytes);
  const FrameHeaderBytes header =
      EncodeFrameHeader({static_cast<uint8_t>(type), body_bytes, request_id});
  Bytes frame(kFrameHeaderBytes + body.size());
  std::copy(header.begin(), header.end(), frame.begin());
  std::copy(body.begin(), body.end(), frame.begin() + kFrameHeaderBytes);
  return frame;
}

uint64_t TotalBytes(std::span<const Piece> pieces) {
  uint64_t total = 0;
  for (const Piece& piece : pieces) total += piece.length;
  return total;
}

Bytes EncodeBatch(Message type, uint64_t request_id, uint64_t segment_id,
                  std::span<const Piece> pieces) {
  MC_CHECK(pieces.size() <= kRequestPieces, "%zu pieces", pieces.size());
  const size_t head = kBatchPrefixBytes + kPieceBytes * pieces.size();
  const uint64_t payload = type == Message::kWrite ? TotalBytes(pieces) : 0;
  const FrameHeaderBytes header = EncodeFrameHeader(
      {static_cast<uint8_t>(type), static_cast<uint32_t>(head + payload), request_id});
  Bytes bytes(kFrameHeaderBytes + head);
  std::copy(header.begin(), header.end(), bytes.begin());
  uint8_t* at = &bytes[kFrameHeaderBytes];
  StoreLittle<uint64_t>(at, segment_id);
  StoreLittle<uint32_t>(at + 8, static_cast<uint32_t>(pieces.size()));
  StoreLittle<uint32_t>(at + 12, 0);
  at += kBatchPrefixBytes;
  for (const Piece& piece : pieces) {
    StoreLittle<uint64_t>(at, piece.offset);
    StoreLittle<uint64_t>(at + 8, piece.length);
    at += kPieceBytes;
  }
  return bytes;
}

Result<BatchPrefix> DecodeBatchPrefix(std::span<const uint8_t> bytes) {
  const BatchPrefix prefix{LoadLittle<uint64_t>(&bytes[0]), LoadLittle<uint32_t>(&bytes[8])};
  if (prefix.count > kRequestPieces) return Malformed("batch: too many pieces");
  return prefix;
}

Result<std::vector<Piece>> DecodePieces(std::span<const uint8_t> bytes) {
  std::vector<Piece> pieces(bytes.size() / kPieceBytes);
  uint64_t total = 0;
  for (size_t i = 0; i < pieces.size(); ++i) {
    pieces[i].offset = LoadLittle<uint64_t>(&bytes[i * kPieceBytes]);
    pieces[i].length = LoadLittle<uint64_t>(&bytes[i * kPieceBytes + 8]);
    if (pieces[i].length > kRequestBytes) return Malformed("batch: a piece is too long");
    total += pieces[i].length;
  }
  if (total > kRequestBytes) return Malformed("batch: too many bytes");
  return pieces;
}

}  // namespace mooncake
