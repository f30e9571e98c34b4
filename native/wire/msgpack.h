// A small msgpack: nil, bool, integers up to 64 bits, bin, str, array, map.
//
// The writer appends to a vector. The reader walks over bytes that it does not own and gives views
// into them. It never reads outside, and allocates nothing. The first error sticks: every later
// call fails too, so a message can be read field by field and checked once.
//
// Thread safety: one thread at a time. The bytes under a reader must outlive it and its views.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <string_view>
#include <vector>

namespace mooncake {

class MsgpackWriter {
 public:
  explicit MsgpackWriter(std::vector<uint8_t>& out) : out_(out) {}

  MsgpackWriter& Nil() { return Byte(0xc0); }
  MsgpackWriter& Bool(bool value) { return Byte(value ? 0xc3 : 0xc2); }
  MsgpackWriter& Uint(uint64_t value);
  MsgpackWriter& Int(int64_t value);
  MsgpackWriter& Str(std::string_view value);
  MsgpackWriter& Bin(std::span<const uint8_t> value);
  MsgpackWriter& Bin(std::string_view value);
  // The header only; `count` elements, or pairs, follow.
  MsgpackWriter& Array(size_t count);
  MsgpackWriter& Map(size_t count);

 private:
  MsgpackWriter& Byte(uint8_t value) {
    out_.push_back(value);
    return *this;
  }
  template <typename T>
  MsgpackWriter& Tagged(uint8_t tag, T value);
  MsgpackWriter& Raw(const void* data, size_t size);

  std::vector<uint8_t>& out_;
};

class MsgpackReader {
 public:
  explicit MsgpackReader(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  // Each gives false, and changes nothing but ok(), when the next value is of another type, does
  // not fit, or is cut off.
  bool Nil();  // true and consumed only when the next value is nil; never an error
  bool Bool(bool& value);
  bool Uint(uint64_t& value);
  bool Int(int64_t& value);
  template <typename T>
  bool UintAs(T& value);  // also fails when the number does not fit T
  bool Str(std::string_view& value);
  bool Bin(std::string_view& value);  // accepts str as well
  // `count` elements (pairs) follow. Every element takes at least a byte, so a count that is larger
  // than what is left is refused: reserving `count` small elements is safe afterwards.
  bool Array(size_t& count);
  bool ArrayOf(size_t expected);  // an array of exactly this many
  bool Map(size_t& count);

  bool ok() const { return ok_; }
  bool done() const { return ok_ && at_ == bytes_.size(); }  // everything was read, without error
  size_t left() const { return bytes_.size() - at_; }

 private:
  bool Fail() {
    ok_ = false;
    return false;
  }
  template <typename T>
  bool Big(uint64_t& value);
  bool View(uint64_t length, std::string_view& value);
  bool Take(uint8_t& byte);
  bool Count(uint8_t fix, uint8_t tag16, size_t bytes_each, size_t& count);

  std::span<const uint8_t> bytes_;
  size_t at_ = 0;
  bool ok_ = true;
};

template <typename T>
bool MsgpackReader::UintAs(T& value) {
  uint64_t wide;
  if (!Uint(wide) || wide > std::numeric_limits<T>::max()) return Fail();
  value = static_cast<T>(wide);
  return true;
}

}  // namespace mooncake
