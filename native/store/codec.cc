#include "store/codec.h"

namespace mooncake::store {
namespace {

constexpr size_t kPlacementBytes = 12;

}  // namespace

void Packer::Put(std::vector<bool>& value) {
  const std::vector<uint8_t> bytes(value.begin(), value.end());
  out_.Bin(bytes);
}

void Packer::Put(std::vector<uint32_t>& value) {
  std::vector<uint8_t> bytes(4 * value.size());
  for (size_t at = 0; at < value.size(); ++at) StoreLittle(&bytes[4 * at], value[at]);
  out_.Bin(bytes);
}

// 12 bytes each: the node's index and the offset.
void Packer::Put(std::vector<Placement>& value) {
  std::vector<uint8_t> bytes(kPlacementBytes * value.size());
  for (size_t at = 0; at < value.size(); ++at) {
    StoreLittle(&bytes[kPlacementBytes * at], value[at].node);
    StoreLittle(&bytes[kPlacementBytes * at + 4], value[at].offset);
  }
  out_.Bin(bytes);
}

bool Unpacker::Get(std::vector<Placement>& value) {
  std::string_view bytes;
  if (!in_.Bin(bytes) || bytes.size() % kPlacementBytes != 0) return false;
  value.resize(bytes.size() / kPlacementBytes);
  const auto* from = reinterpret_cast<const uint8_t*>(bytes.data());
  for (Placement& placement : value) {
    placement = {LoadLittle<uint32_t>(from), LoadLittle<uint64_t>(from + 4)};
    from += kPlacementBytes;
  }
  return true;
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
