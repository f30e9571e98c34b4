// Frames and msgpack, also when they are hostile.
#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "tests/test.h"
#include "wire/frame.h"
#include "wire/frame_buffer.h"
#include "wire/msgpack.h"

namespace mooncake {
namespace {

using Bytes = std::vector<uint8_t>;

TEST(FramesComeBackAsTheyWere) {
  const auto bytes = EncodeFrameHeader({7, kFrameBodyMax, 0x0123456789abcdef});
  const auto header = DecodeFrameHeader(bytes);
  EXPECT(header.ok());
  EXPECT(header.value().type == 7 && header.value().body_bytes == kFrameBodyMax);
  EXPECT(header.value().request_id == 0x0123456789abcdef);
}

TEST(FramesThatAreNotOursAreRefused) {
  const auto good = EncodeFrameHeader({1, 10, 1});
  for (size_t at : {0u, 1u, 2u, 7u}) {
    auto bad = good;
    bad[at] ^= 0x80;
    const auto header = DecodeFrameHeader(bad);
    EXPECT(!header.ok() && header.status().code() == Code::kWire);
  }
}

// Three frames, the second of them large, and half of a fourth.
Bytes SomeFrames() {
  Bytes out;
  for (const size_t body : {3u, 300'000u, 0u, 10u}) {
    const size_t begin = BeginFrame(out);
    out.insert(out.end(), body, static_cast<uint8_t>(body));
    EndFrame(out, begin, 5, body);
  }
  out.resize(out.size() - 5);
  return out;
}

TEST(FramesAreCutOutOfWhateverPiecesArrive) {
  const Bytes sent = SomeFrames();
  for (const size_t most : {size_t{1}, size_t{17}, size_t{5000}, sent.size()}) {
    FrameBuffer buffer;
    std::vector<size_t> bodies;
    for (size_t at = 0; at < sent.size();) {
      const auto room = buffer.Room();
      EXPECT(!room.empty() && room.size() <= FrameBuffer::kReadBytes);
      const size_t count = std::min({most, room.size(), sent.size() - at});
      std::copy_n(&sent[at], count, room.begin());
      buffer.Add(count);
      at += count;
      for (auto next = buffer.Next(); next.value(); next = buffer.Next()) {
        const auto [header, body] = *next.value();
        EXPECT(header.type == 5 && header.request_id == body.size());
        EXPECT(std::count(body.begin(), body.end(), static_cast<uint8_t>(body.size())) ==
               static_cast<ptrdiff_t>(body.size()));
        bodies.push_back(body.size());
      }
    }
    EXPECT((bodies == std::vector<size_t>{3, 300'000, 0}));
    EXPECT(!buffer.is_empty());
  }
}

TEST(BufferRefusesWhatIsNoFrame) {
  FrameBuffer buffer;
  const auto room = buffer.Room();
  std::fill_n(room.begin(), kFrameHeaderBytes, uint8_t{0xff});
  buffer.Add(kFrameHeaderBytes);
  EXPECT(buffer.Next().status().code() == Code::kWire);
}

TEST(IntegersComeBackInTheShortestForm) {
  const uint64_t values[] = {0,     1,     0x7f,       0x80,        0xff,      0x100,
                             65535, 65536, 0xffffffff, 0x100000000, UINT64_MAX};
  const size_t sizes[] = {1, 1, 1, 2, 2, 3, 3, 5, 5, 9, 9};
  for (size_t i = 0; i < std::size(values); ++i) {
    Bytes bytes;
    MsgpackWriter(bytes).Uint(values[i]);
    EXPECT(bytes.size() == sizes[i]);
    MsgpackReader reader(bytes);
    uint64_t value = 42;
    EXPECT(reader.Uint(value) && value == values[i] && reader.done());
  }
  for (int64_t value : {INT64_MIN, int64_t{-33}, int64_t{-32}, int64_t{-1}, INT64_MAX}) {
    Bytes bytes;
    MsgpackWriter(bytes).Int(value);
    int64_t back = 0;
    EXPECT(MsgpackReader(bytes).Int(back) && back == value);
    uint64_t unsigned_back = 0;
    EXPECT(MsgpackReader(bytes).Uint(unsigned_back) == (value >= 0));
  }
}

TEST(TextBinaryAndContainersComeBack) {
  for (size_t size : {0u, 31u, 32u, 255u, 256u, 65535u, 65536u}) {
    const std::string text(size, 'x');
    Bytes bytes;
    MsgpackWriter(bytes).Array(3).Str(text).Bin(text).Nil();
    MsgpackReader reader(bytes);
    std::string_view str;
    std::string_view bin;
    EXPECT(reader.ArrayOf(3) && reader.Str(str) && reader.Bin(bin) && reader.Nil());
    EXPECT(str == text && bin == text && reader.done());
  }
}

TEST(EveryPrefixOfAMessageIsAnErrorAndNeverARead) {
  Bytes whole;
  MsgpackWriter(whole).Array(4).Uint(1u << 30).Str(std::string(300, 'a')).Bool(true).Map(1);
  MsgpackWriter(whole).Str("key").Int(-5);
  for (size_t size = 0; size <= whole.size(); ++size) {
    const Bytes cut(whole.begin(), whole.begin() + static_cast<ptrdiff_t>(size));
    MsgpackReader reader(cut);
    uint64_t number;
    int64_t integer;
    bool flag;
    size_t count;
    std::string_view text;
    reader.ArrayOf(4) && reader.Uint(number) && reader.Str(text) && reader.Bool(flag) &&
        reader.Map(count) && reader.Str(text) && reader.Int(integer);
    EXPECT(reader.done() == (size == whole.size()));
  }
}

TEST(LengthsThatCannotBeTrueAreRefused) {
  size_t count;
  std::string_view text;
  const auto refuses = [&](const Bytes& bytes) {
    return !MsgpackReader(bytes).Array(count) && !MsgpackReader(bytes).Map(count) &&
           !MsgpackReader(bytes).Bin(text) && !MsgpackReader(bytes).Str(text);
  };
  EXPECT(refuses({0xdd, 0xff, 0xff, 0xff, 0xff, 1}));
  EXPECT(refuses({0xdf, 0, 0, 0, 1, 1}));
  EXPECT(refuses({0xc6, 0xff, 0xff, 0xff, 0xff, 1}));
  EXPECT(refuses({0xdb, 0xff, 0xff, 0xff, 0xff, 1}));
}

TEST(RandomBytesAreNeverReadOutside) {
  std::mt19937_64 random(2);
  for (int round = 0; round < 50'000; ++round) {
    Bytes bytes(random() % 40);
    for (auto& byte : bytes) byte = static_cast<uint8_t>(random());
    MsgpackReader reader(bytes);
    while (reader.ok() && reader.left() > 0) {
      uint64_t number;
      size_t count;
      std::string_view text;
      const int kind = static_cast<int>(random() % 4);
      if (kind == 0) reader.Uint(number);
      if (kind == 1) reader.Bin(text);
      if (kind == 2) reader.Array(count);
      if (kind == 3) reader.Map(count);
    }
    EXPECT(reader.left() <= bytes.size());
  }
}

}  // namespace
}  // namespace mooncake

RUN_TESTS()
