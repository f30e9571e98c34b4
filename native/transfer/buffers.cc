#include "transfer/buffers.h"

#include <algorithm>
#include <cstdio>
#include <string>

#include "transfer/location.h"

namespace mooncake {
namespace {

std::string Describe(uint64_t address, uint64_t size_bytes) {
  char text[64];
  std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(address));
  return std::to_string(size_bytes) + " bytes at " + text;
}

bool Overlap(const BufferTable::Range& a, const BufferTable::Range& b) {
  return a.begin < b.end && b.begin < a.end;
}

void Append(BufferTable::Ranges& ranges, const BufferTable::Range& range) {
  const bool is_same_kind = !ranges.empty() && range.device == ranges.back().device;
  if (is_same_kind && range.begin <= ranges.back().end) {
    ranges.back().end = std::max(ranges.back().end, range.end);
  } else {
    ranges.push_back(range);
  }
}

// The last range that begins at or before `address`, or null.
const BufferTable::Range* FindBefore(const BufferTable::Ranges& ranges, uint64_t address) {
  const auto after =
      std::upper_bound(ranges.begin(), ranges.end(), address,
                       [](uint64_t a, const BufferTable::Range& r) { return a < r.begin; });
  return after == ranges.begin() ? nullptr : &*std::prev(after);
}

// The range that holds all of it, or null.
const BufferTable::Range* Find(const BufferTable::Ranges& ranges, const Piece& piece) {
  const BufferTable::Range* range = FindBefore(ranges, piece.address);
  if (range == nullptr || piece.address >= range->end) return nullptr;
  return piece.length <= range->end - piece.address ? range : nullptr;
}

// What is used of a registered range; an empty range at `address` when nothing was, so far.
BufferTable::Range& PartOf(BufferTable::Ranges& used, const BufferTable::Range& range,
                           uint64_t address) {
  const auto after =
      std::lower_bound(used.begin(), used.end(), range.end,
                       [](const BufferTable::Range& r, uint64_t end) { return r.begin < end; });
  if (after != used.begin() && std::prev(after)->begin >= range.begin) return *std::prev(after);
  return *used.insert(after, {address, address, range.device});
}

}  // namespace

bool BufferTable::Footprint::is_on_device() const {
  return std::any_of(ranges.begin(), ranges.end(),
                     [](const Range& r) { return r.device != kHost; });
}

int BufferTable::Footprint::DeviceOf(uint64_t address) const {
  return FindBefore(ranges, address)->device;
}

Status BufferTable::Register(uint64_t address, uint64_t size_bytes, Access access, int device) {
  if (size_bytes == 0 || address > UINT64_MAX - size_bytes) {
    return Status(Code::kInvalidArgument,
                  "register " + Describe(address, size_bytes) + ": no range of memory");
  }
  const Range range{address, address + size_bytes, device};
  const int location = Locate(address, device);
  const std::lock_guard lock(mutex_);
  const auto clashes = [&](const Range& r) { return r.device != device && Overlap(r, range); };
  const auto near = std::lower_bound(sources_.begin(), sources_.end(), address,
                                     [](const Range& r, uint64_t a) { return r.end <= a; });
  const auto past =
      std::find_if(near, sources_.end(), [&](const Range& r) { return r.begin >= range.end; });
  if (std::any_of(near, past, clashes)) {
    return Status(Code::kInvalidArgument, "register " + Describe(address, size_bytes) +
                                              ": registered as memory of another device");
  }
  Registration& registration = registrations_[{address, size_bytes, access}];
  if (++registration.count > 1) return Status::Ok();
  registration.device = device;
  registration.location = location;
  Merge(range);
  return Status::Ok();
}

Status BufferTable::Unregister(uint64_t address, uint64_t size_bytes, Access access) {
  std::unique_lock lock(mutex_);
  const auto found = registrations_.find({address, size_bytes, access});
  if (found == registrations_.end()) {
    return Status(Code::kBufferNotRegistered,
                  "unregister " + Describe(address, size_bytes) + ": not registered like this");
  }
  if (--found->second.count > 0) return Status::Ok();
  registrations_.erase(found);
  const Range range{address, address + size_bytes};
  Merge(range);
  dropped_.wait(lock, [&, generation = generation_] { return !InUse(range, generation); });
  return Status::Ok();
}

Result<BufferTable::Claim> BufferTable::Use(Op op, std::span<const Piece> pieces) {
  SharedFootprint known;
  return Use(op, pieces, known);
}

Result<BufferTable::Claim> BufferTable::Use(Op op, std::span<const Piece> pieces,
                                            SharedFootprint& known) {
  const std::lock_guard lock(mutex_);
  if (known == nullptr || known->generation != generation_) {
    auto surveyed = Survey(op, pieces);
    if (!surveyed.ok()) return surveyed.status();
    known = std::move(surveyed).value();
  }
  claims_.push_back(known);
  return Claim(*this, std::prev(claims_.end()));
}

Result<BufferTable::SharedFootprint> BufferTable::Survey(Op op,
                                                         std::span<const Piece> pieces) const {
  const Ranges& allowed = op == Op::kRead ? targets_ : sources_;
  auto footprint = std::make_shared<Footprint>();
  footprint->generation = generation_;
  const Range* last = nullptr;
  Range* used = nullptr;  // of *last
  for (const Piece& piece : pieces) {
    if (piece.length == 0) continue;
    const Range* range = Find(allowed, piece);
    if (range == nullptr) return Outside(piece);
    if (last == nullptr) footprint->location = LocationOf(piece.address);
    if (range != last) used = &PartOf(footprint->ranges, *range, piece.address);
    last = range;
    used->begin = std::min(used->begin, piece.address);
    used->end = std::max(used->end, piece.address + piece.length);
  }
  return SharedFootprint(std::move(footprint));
}

Status BufferTable::Outside(const Piece& piece) const {
  const char* why = Find(sources_, piece) != nullptr
                        ? " are registered as a source, not to be read into"
                        : " lie outside every registered buffer and own segment";
  return Status(Code::kBufferNotRegistered, Describe(piece.address, piece.length) + why);
}

// Which of the locations memory is at that is being registered.
int BufferTable::Locate(uint64_t address, int device) const {
  if (locations_.empty()) return -1;
  const std::string name = device == kHost ? CpuLocation(address) : CudaLocation(device);
  const auto found = std::find(locations_.begin(), locations_.end(), name);
  return found == locations_.end() ? -1 : static_cast<int>(found - locations_.begin());
}

// As found when the registration was made that begins last before `address`.
int BufferTable::LocationOf(uint64_t address) const {
  if (locations_.empty()) return -1;
  const auto after = registrations_.upper_bound({address, UINT64_MAX, Access::kBoth});
  return after == registrations_.begin() ? -1 : std::prev(after)->second.location;
}

// After registrations within `changed` have come or gone.
void BufferTable::Merge(Range changed) {
  ++generation_;
  Merge(sources_, Access::kSource, changed);
  Merge(targets_, Access::kBoth, changed);
}

// Makes those ranges anew that touch what has changed.
void BufferTable::Merge(Ranges& ranges, Access least, Range changed) const {
  const auto first = std::lower_bound(ranges.begin(), ranges.end(), changed.begin,
                                      [](const Range& r, uint64_t begin) { return r.end < begin; });
  auto last = first;
  for (; last != ranges.end() && last->begin <= changed.end; ++last) {
    changed.begin = std::min(changed.begin, last->begin);
    changed.end = std::max(changed.end, last->end);
  }
  Ranges fresh;
  auto at = registrations_.lower_bound({changed.begin, 0, Access::kSource});
  for (; at != registrations_.end() && std::get<0>(at->first) < changed.end; ++at) {
    const auto& [address, size_bytes, access] = at->first;
    if (access < least) continue;
    Append(fresh, {address, address + size_bytes, at->second.device});
  }
  ranges.insert(ranges.erase(first, last), fresh.begin(), fresh.end());
}

// By a batch that began before the registrations were of that generation.
bool BufferTable::InUse(const Range& range, uint64_t generation) const {
  const auto overlaps = [&](const Range& r) { return Overlap(r, range); };
  return std::any_of(claims_.begin(), claims_.end(), [&](const SharedFootprint& used) {
    return used->generation < generation &&
           std::any_of(used->ranges.begin(), used->ranges.end(), overlaps);
  });
}

void BufferTable::Drop(std::list<SharedFootprint>::iterator at) {
  const std::lock_guard lock(mutex_);
  claims_.erase(at);
  dropped_.notify_all();
}

}  // namespace mooncake
