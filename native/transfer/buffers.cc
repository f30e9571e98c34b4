#include "transfer/buffers.h"

#include <algorithm>
#include <cstdio>
#include <string>

namespace mooncake {
namespace {

std::string Describe(uint64_t address, uint64_t size_bytes) {
  char text[64];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  return std::to_string(size_bytes) + " bytes at " + text;
}

void Append(BufferTable::Ranges& ranges, const BufferTable::Range& range) {
  if (!ranges.empty() && range.begin <= ranges.back().end) {
    ranges.back().end = std::max(ranges.back().end, range.end);
  } else {
    ranges.push_back(range);
  }
}

// The range that holds all of it, or null.
const BufferTable::Range* Find(const BufferTable::Ranges& ranges, const Piece& piece) {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), piece.address,
                       [](uint64_t a, const BufferTable::Range& r) { return a < r.begin; });
  if (after == ranges.begin()) return nullptr;
  const BufferTable::Range& range = *std::prev(after);
  const bool is_inside = piece.address < range.end && piece.length <= range.end - piece.address;
  return is_inside ? &range : nullptr;
}

}  // namespace

Status BufferTable::Register(uint64_t address, uint64_t size_bytes, Access access) {
  if (size_bytes == 0 || address > UINT64_MAX - size_bytes) {
    return Status(Code::kInvalidArgument,
                  "register " + Describe(address, size_bytes) + ": no range of memory");
  }
  const std::lock_guard lock(mutex_);
  if (++counts_[{address, size_bytes, access}] == 1) Merge();
  return Status::Ok();
}

Status BufferTable::Unregister(uint64_t address, uint64_t size_bytes, Access access) {
  std::unique_lock lock(mutex_);
  const auto found = counts_.find({address, size_bytes, access});
  if (found == counts_.end()) {
    return Status(Code::kBufferNotRegistered,
                  "unregister " + Describe(address, size_bytes) + ": not registered like this");
  }
  if (--found->second > 0) return Status::Ok();
  counts_.erase(found);
  Merge();
  dropped_.wait(lock, [&] { return !InUse({address, address + size_bytes}); });
  return Status::Ok();
}

Result<BufferTable::Claim> BufferTable::Use(Op op, std::span<const Piece> pieces) {
  const std::lock_guard lock(mutex_);
  const Ranges& allowed = op == Op::kRead ? targets_ : sources_;
  Ranges used;
  const Range* last = nullptr;
  for (const Piece& piece : pieces) {
    if (piece.length == 0) continue;
    const Range* range = Find(allowed, piece);
    if (range == nullptr) {
      const char* why = Find(sources_, piece) != nullptr
                            ? " are registered as a source, not to be read into"
                            : " lie outside every registered buffer and own segment";
      return Status(Code::kBufferNotRegistered, Describe(piece.address, piece.length) + why);
    }
    if (range != last) used.push_back({piece.address, piece.address});
    last = range;
    used.back().begin = std::min(used.back().begin, piece.address);
    used.back().end = std::max(used.back().end, piece.address + piece.length);
  }
  claims_.push_back(std::move(used));
  return Claim(*this, std::prev(claims_.end()));
}

void BufferTable::Merge() {
  sources_.clear();
  targets_.clear();
  for (const auto& [key, count] : counts_) {  // by rising address
    const auto& [address, size_bytes, access] = key;
    const Range range{address, address + size_bytes};
    Append(sources_, range);
    if (access == Access::kBoth) Append(targets_, range);
  }
}

bool BufferTable::InUse(const Range& range) const {
  const auto overlaps = [&](const Range& r) { return r.begin < range.end && range.begin < r.end; };
  return std::any_of(claims_.begin(), claims_.end(), [&](const Ranges& used) {
    return std::any_of(used.begin(), used.end(), overlaps);
  });
}

void BufferTable::Drop(std::list<Ranges>::iterator at) {
  const std::lock_guard lock(mutex_);
  claims_.erase(at);
  dropped_.notify_all();
}

}  // namespace mooncake
