#include "policy/eviction.h"

#include <numeric>

#include "base/check.h"
#include "policy/fifo.h"
#include "policy/lfu.h"
#include "policy/lru.h"
#include "policy/registry.h"

namespace mooncake {

void Eviction::Insert(uint32_t id, EvictionClass in, const EvictionTraits& traits) {
  MC_CHECK(id <= kMaxId && !Contains(id), "id %u", id);
  ids_.Cover(id);
  ids_.mark(id) = 0;
  SetMark(id, in);
  ++counts_[static_cast<int>(in)];
  Added(id, traits);
}

void Eviction::Touch(uint32_t id) {
  MC_CHECK(Contains(id), "id %u", id);
  Used(id);
}

void Eviction::SetClass(uint32_t id, EvictionClass to, bool goes_next) {
  MC_CHECK(Contains(id), "id %u", id);
  const EvictionClass from = ClassOf(id);
  if (from == to && !goes_next) return;
  --counts_[static_cast<int>(from)];
  ++counts_[static_cast<int>(to)];
  SetMark(id, to);
  Moved(id, from, goes_next);
}

void Eviction::Remove(uint32_t id) {
  MC_CHECK(Contains(id), "id %u", id);
  Leaving(id);
  --counts_[static_cast<int>(ClassOf(id))];
  ids_.mark(id) = 0;
}

uint32_t Eviction::Victim(EvictionClass limit) { return FirstFrom(0, limit); }

uint32_t Eviction::Next(uint32_t id, EvictionClass limit) {
  MC_CHECK(Contains(id) && ClassOf(id) != EvictionClass::kHeld, "id %u", id);
  if (const uint32_t after = AfterInClass(id); after != kNone) return after;
  return FirstFrom(static_cast<int>(ClassOf(id)) + 1, limit);
}

uint32_t Eviction::FirstFrom(int from, EvictionClass limit) {
  for (int in = from; in <= static_cast<int>(limit); ++in) {
    if (in == static_cast<int>(EvictionClass::kHeld)) break;
    if (counts_[in] > 0) return FirstOf(static_cast<EvictionClass>(in));
  }
  return kNone;
}

uint64_t Eviction::count() const {
  return std::accumulate(counts_.begin(), counts_.end(), uint64_t{0});
}

void Eviction::SetMark(uint32_t id, EvictionClass in) {
  uint32_t& mark = ids_.mark(id);
  mark = mark / kMarks * kMarks + static_cast<uint32_t>(in) + 1;
}

void Eviction::Check() {
  std::array<uint32_t, kEvictionClasses> walked{};
  int last = 0;
  for (uint32_t id = Victim(); id != kNone; id = Next(id)) {
    MC_CHECK(Contains(id), "id %u", id);
    const int in = static_cast<int>(ClassOf(id));
    MC_CHECK(in >= last && in < static_cast<int>(EvictionClass::kHeld), "id %u", id);
    MC_CHECK(++walked[in] <= counts_[in], "more than %u are in class %d", counts_[in], in);
    last = in;
  }
  walked.back() = counts_.back();
  MC_CHECK(walked == counts_, "a class is not whole");
}

namespace {

template <typename Variant>
std::unique_ptr<Eviction> Make() {
  return std::make_unique<Variant>();
}

constexpr Named<std::unique_ptr<Eviction>()> kEvictions[] = {
    {"lru", &Make<LruEviction>},
    {"fifo", &Make<FifoEviction>},
    {"lfu", &Make<LfuEviction>},
};

}  // namespace

Result<std::unique_ptr<Eviction>> MakeEviction(std::string_view name) {
  const auto* found = FindNamed(kEvictions, name);
  if (found == nullptr) return UnknownName("eviction policy", name, EvictionNames());
  return found->make();
}

std::vector<std::string> EvictionNames() { return NamesOf(kEvictions); }

}  // namespace mooncake
