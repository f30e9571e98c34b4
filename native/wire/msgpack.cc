#include "wire/msgpack.h"

#include "base/check.h"

namespace mooncake {

template <typename T>
MsgpackWriter& MsgpackWriter::Tagged(uint8_t tag, T value) {
  uint8_t bytes[1 + sizeof(T)] = {tag};
  for (size_t at = sizeof(T); at > 0; --at, value = static_cast<T>(uint64_t{value} >> 8)) {
    bytes[at] = static_cast<uint8_t>(value);
  }
  return Raw(bytes, sizeof bytes);
}

MsgpackWriter& MsgpackWriter::Raw(const void* data, size_t size) {
  auto* bytes = static_cast<const uint8_t*>(data);
  out_.insert(out_.end(), bytes, bytes + size);
  return *this;
}

MsgpackWriter& MsgpackWriter::Uint(uint64_t value) {
  if (value < 0x80) return Byte(static_cast<uint8_t>(value));
  if (value <= 0xff) return Tagged<uint8_t>(0xcc, static_cast<uint8_t>(value));
  if (value <= 0xffff) return Tagged<uint16_t>(0xcd, static_cast<uint16_t>(value));
  if (value <= 0xffffffff) return Tagged<uint32_t>(0xce, static_cast<uint32_t>(value));
  return Tagged<uint64_t>(0xcf, value);
}

MsgpackWriter& MsgpackWriter::Int(int64_t value) {
  if (value >= 0) return Uint(static_cast<uint64_t>(value));
  if (value >= -32) return Byte(static_cast<uint8_t>(value));
  return Tagged<uint64_t>(0xd3, static_cast<uint64_t>(value));
}

MsgpackWriter& MsgpackWriter::Str(std::string_view value) {
  MC_CHECK(value.size() <= 0xffffffff, "%zu", value.size());
  if (value.size() < 32) {
    Byte(static_cast<uint8_t>(0xa0 | value.size()));
  } else if (value.size() <= 0xff) {
    Tagged<uint8_t>(0xd9, static_cast<uint8_t>(value.size()));
  } else if (value.size() <= 0xffff) {
    Tagged<uint16_t>(0xda, static_cast<uint16_t>(value.size()));
  } else {
    Tagged<uint32_t>(0xdb, static_cast<uint32_t>(value.size()));
  }
  return Raw(value.data(), value.size());
}

MsgpackWriter& MsgpackWriter::Bin(std::span<const uint8_t> value) {
  MC_CHECK(value.size() <= 0xffffffff, "%zu", value.size());
  if (value.size() <= 0xff) {
    Tagged<uint8_t>(0xc4, static_cast<uint8_t>(value.size()));
  } else if (value.size() <= 0xffff) {
    Tagged<uint16_t>(0xc5, static_cast<uint16_t>(value.size()));
  } else {
    Tagged<uint32_t>(0xc6, static_cast<uint32_t>(value.size()));
  }
  return Raw(value.data(), value.size());
}

MsgpackWriter& MsgpackWriter::Bin(std::string_view value) {
  return Bin(std::span(reinterpret_cast<const uint8_t*>(value.data()), value.size()));
}

MsgpackWriter& MsgpackWriter::Array(size_t count) {
  MC_CHECK(count <= 0xffffffff, "%zu", count);
  if (count < 16) return Byte(static_cast<uint8_t>(0x90 | count));
  if (count <= 0xffff) return Tagged<uint16_t>(0xdc, static_cast<uint16_t>(count));
  return Tagged<uint32_t>(0xdd, static_cast<uint32_t>(count));
}

MsgpackWriter& MsgpackWriter::Map(size_t count) {
  MC_CHECK(count <= 0xffffffff, "%zu", count);
  if (count < 16) return Byte(static_cast<uint8_t>(0x80 | count));
  if (count <= 0xffff) return Tagged<uint16_t>(0xde, static_cast<uint16_t>(count));
  return Tagged<uint32_t>(0xdf, static_cast<uint32_t>(count));
}

bool MsgpackReader::Take(uint8_t& byte) {
  if (!ok_ || at_ == bytes_.size()) return Fail();
  byte = bytes_[at_++];
  return true;
}

template <typename T>
bool MsgpackReader::Big(uint64_t& value) {
  if (!ok_ || left() < sizeof(T)) return Fail();
  value = 0;
  for (size_t i = 0; i < sizeof(T); ++i) value = value << 8 | bytes_[at_++];
  return true;
}

bool MsgpackReader::Nil() {
  if (!ok_ || at_ == bytes_.size() || bytes_[at_] != 0xc0) return false;
  ++at_;
  return true;
}

bool MsgpackReader::Bool(bool& value) {
  uint8_t tag;
  if (!Take(tag) || (tag != 0xc2 && tag != 0xc3)) return Fail();
  value = tag == 0xc3;
  return true;
}

bool MsgpackReader::Uint(uint64_t& value) {
  int64_t narrow;
  if (ok_ && at_ < bytes_.size() && bytes_[at_] == 0xcf) {
    ++at_;
    return Big<uint64_t>(value);
  }
  if (!Int(narrow) || narrow < 0) return Fail();
  value = static_cast<uint64_t>(narrow);
  return true;
}

bool MsgpackReader::Int(int64_t& value) {
  uint8_t tag;
  uint64_t wide = 0;
  if (!Take(tag)) return false;
  if (tag < 0x80 || tag >= 0xe0) {
    value = static_cast<int8_t>(tag);
    return true;
  }
  switch (tag) {
    case 0xcc:
      if (!Big<uint8_t>(wide)) return false;
      break;
    case 0xcd:
      if (!Big<uint16_t>(wide)) return false;
      break;
    case 0xce:
      if (!Big<uint32_t>(wide)) return false;
      break;
    case 0xcf:
      if (!Big<uint64_t>(wide) || wide >> 63) return Fail();
      break;
    case 0xd0:
      if (!Big<uint8_t>(wide)) return false;
      wide = static_cast<uint64_t>(static_cast<int8_t>(wide));
      break;
    case 0xd1:
      if (!Big<uint16_t>(wide)) return false;
      wide = static_cast<uint64_t>(static_cast<int16_t>(wide));
      break;
    case 0xd2:
      if (!Big<uint32_t>(wide)) return false;
      wide = static_cast<uint64_t>(static_cast<int32_t>(wide));
      break;
    case 0xd3:
      if (!Big<uint64_t>(wide)) return false;
      break;
    default:
      return Fail();
  }
  value = static_cast<int64_t>(wide);
  return true;
}

bool MsgpackReader::View(uint64_t length, std::string_view& value) {
  if (length > left()) return Fail();
  value = {reinterpret_cast<const char*>(bytes_.data()) + at_, static_cast<size_t>(length)};
  at_ += static_cast<size_t>(length);
  return true;
}

bool MsgpackReader::Str(std::string_view& value) {
  uint8_t tag;
  uint64_t length = 0;
  if (!Take(tag)) return false;
  if ((tag & 0xe0) == 0xa0) return View(tag & 0x1f, value);
  if (tag == 0xd9) return Big<uint8_t>(length) && View(length, value);
  if (tag == 0xda) return Big<uint16_t>(length) && View(length, value);
  if (tag == 0xdb) return Big<uint32_t>(length) && View(length, value);
  return Fail();
}

bool MsgpackReader::Bin(std::string_view& value) {
  uint64_t length = 0;
  const uint8_t tag = ok_ && at_ < bytes_.size() ? bytes_[at_] : 0;
  if (tag != 0xc4 && tag != 0xc5 && tag != 0xc6) return Str(value);
  ++at_;
  if (tag == 0xc4) return Big<uint8_t>(length) && View(length, value);
  if (tag == 0xc5) return Big<uint16_t>(length) && View(length, value);
  return Big<uint32_t>(length) && View(length, value);
}

bool MsgpackReader::Count(uint8_t fix, uint8_t tag16, size_t bytes_each, size_t& count) {
  uint8_t tag;
  uint64_t wide = 0;
  if (!Take(tag)) return false;
  if ((tag & 0xf0) == fix) {
    wide = tag & 0x0f;
  } else if (tag == tag16) {
    if (!Big<uint16_t>(wide)) return false;
  } else if (tag != tag16 + 1 || !Big<uint32_t>(wide)) {
    return Fail();
  }
  if (wide > left() / bytes_each) return Fail();
  count = static_cast<size_t>(wide);
  return true;
}

bool MsgpackReader::Array(size_t& count) { return Count(0x90, 0xdc, 1, count); }
bool MsgpackReader::Map(size_t& count) { return Count(0x80, 0xde, 2, count); }

bool MsgpackReader::ArrayOf(size_t expected) {
  size_t count;
  return Array(count) && (count == expected || Fail());
}

}  // namespace mooncake
