#include "store/codec.h"

namespace mooncake::store {

void Packer::Put(std::vector<bool>& value) {
  const std::vector<uint8_t> bytes(value.begin(), value.end());
  out_.Bin(bytes);
}

void Packer::Put(std::vector<uint32_t>& value) {
  std::vector<uint8_t> bytes(4 * value.size());
  for (size_t at = 0; at < value.size(); ++at) StoreLittle(&bytes[4 * at], value[at]);
  out_.Bin(bytes);
}

bool Unpacker::Get(double& value) {
  uint64_t micros = 0;
  if (!in_.Uint(micros)) return false;
  value = static_cast<double>(micros) / 1e6;
  return true;
}

bool Unpacker::Get(std::string& value) {
  std::string_view bytes;
  if (!in_.Bin(bytes)) return false;
  value = bytes;
  return true;
}

bool Unpacker::Get(std::vector<bool>& value) {
  std::string_view bytes;
  if (!in_.Bin(bytes)) return false;
  value.clear();
  for (const char byte : bytes) value.push_back(byte != 0);
  return true;
}

bool Unpacker::Get(std::vector<uint32_t>& value) {
  std::string_view bytes;
  if (!in_.Bin(bytes) || bytes.size() % 4 != 0) return false;
  value.resize(bytes.size() / 4);
  for (size_t at = 0; at < value.size(); ++at) {
    value[at] = LoadLittle<uint32_t>(reinterpret_cast<const uint8_t*>(bytes.data()) + 4 * at);
  }
  return true;
}

}  // namespace mooncake::store
