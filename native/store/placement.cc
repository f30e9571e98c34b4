#include "store/placement.h"

#include <algorithm>

#include "base/check.h"

namespace mooncake::store {
namespace {

// Most objects need one choice or two, which is less than sorting.
constexpr uint32_t kScans = 2;

}  // namespace

struct Placer::Strategy {
  std::string_view name;
  double (Placer::*score)(const NodeView& node, uint32_t slot, const Wish& wish);
};

const Placer::Strategy Placer::kStrategies[] = {
    {"free-ratio-first", &Placer::FreeRatio},
    {"random", &Placer::AnyOrder},
    {"round-robin", &Placer::InTurn},
    {"local-first", &Placer::LocalFirst},
};

Result<std::unique_ptr<Placer>> Placer::Make(std::string_view strategy, uint64_t seed) {
  std::string known;
  for (const Strategy& one : kStrategies) {
    if (one.name == strategy) return std::unique_ptr<Placer>(new Placer(one, seed));
    known += (known.empty() ? "" : ", ") + std::string(one.name);
  }
  return Status(Code::kInvalidArgument,
                "placement '" + std::string(strategy) + "' is not known; there are: " + known);
}

std::vector<std::string> Placer::Strategies() {
  std::vector<std::string> names;
  for (const Strategy& one : kStrategies) names.emplace_back(one.name);
  return names;
}

void Placer::Begin(std::span<const NodeView> nodes, const Wish& wish) {
  candidates_.clear();
  asked_ = 0;
  node_count_ = static_cast<uint32_t>(nodes.size());
  for (uint32_t slot = 0; slot < node_count_; ++slot) {
    const NodeView& node = nodes[slot];
    if (!node.is_open || node.free_bytes + node.evictable_bytes < wish.bytes) continue;
    const auto named = std::ranges::find(wish.preferred, node.name) - wish.preferred.begin();
    const size_t behind = node.is_doubted ? wish.preferred.size() + 1 : 0;
    candidates_.push_back({.slot = slot,
                           .domain = node.domain,
                           .preference = static_cast<uint32_t>(named + behind),
                           .score = (this->*strategy_.score)(node, slot, wish)});
  }
}

// Those that were named come last. Of two that are as good, the one of the lower slot is first.
bool Placer::IsBefore(const Candidate& one, const Candidate& other) {
  if (one.is_named != other.is_named) return other.is_named;
  if (one.preference != other.preference) return one.preference < other.preference;
  if (one.score != other.score) return one.score > other.score;
  return one.slot < other.slot;
}

uint32_t Placer::Next() {
  if (++asked_ == kScans + 1) {
    std::ranges::sort(candidates_, IsBefore);
    next_ = 0;
  }
  if (asked_ <= kScans) {
    next_ = std::ranges::min_element(candidates_, IsBefore) - candidates_.begin();
  }
  if (next_ == candidates_.size() || candidates_[next_].is_named) return kNone;
  candidates_[next_].is_named = true;
  return candidates_[next_++].slot;
}

void Placer::Exclude(uint32_t domain) {
  std::erase_if(candidates_, [domain](const Candidate& one) { return one.domain == domain; });
  next_ = std::ranges::find(candidates_, false, &Candidate::is_named) - candidates_.begin();
}

void Placer::Take(uint32_t slot) {
  const auto found = std::ranges::find(candidates_, slot, &Candidate::slot);
  MC_CHECK(found != candidates_.end(), "node %u is no candidate", slot);
  turn_ = slot + 1;
  Exclude(found->domain);
}

uint32_t Placer::CountDomains(std::span<const NodeView> nodes) {
  std::vector<uint32_t> domains;
  for (const NodeView& node : nodes) {
    if (node.is_open) domains.push_back(node.domain);
  }
  std::ranges::sort(domains);
  const auto repeated = std::ranges::unique(domains);
  return static_cast<uint32_t>(domains.size() - repeated.size());
}

// splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
uint64_t Placer::Random() {
  uint64_t z = random_ += 0x9e3779b97f4a7c15;
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
  z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
  return z ^ (z >> 31);
}

double Placer::FreeRatio(const NodeView& node, uint32_t, const Wish&) {
  return static_cast<double>(node.free_bytes) / static_cast<double>(node.capacity_bytes);
}

double Placer::AnyOrder(const NodeView&, uint32_t, const Wish&) {
  return static_cast<double>(Random() >> 11);
}

double Placer::InTurn(const NodeView&, uint32_t slot, const Wish&) {
  const uint32_t turns = (slot + node_count_ - turn_ % node_count_) % node_count_;
  return -static_cast<double>(turns);
}

double Placer::LocalFirst(const NodeView& node, uint32_t slot, const Wish& wish) {
  const bool is_local = wish.host != Wish::kNoHost && node.host == wish.host;
  return FreeRatio(node, slot, wish) + (is_local ? 2 : 0);
}

}  // namespace mooncake::store
