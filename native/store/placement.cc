#include "store/placement.h"

#include <algorithm>

#include "base/check.h"

namespace mooncake::store {

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

// A choice is a scan: most objects need one or two, which is less than sorting.
uint32_t Placer::Next() {
  Candidate* best = nullptr;
  for (Candidate& one : candidates_) {
    if (one.is_named) continue;
    const bool is_better = best == nullptr || one.preference < best->preference ||
                           (one.preference == best->preference && one.score > best->score);
    if (is_better) best = &one;
  }
  if (best == nullptr) return kNone;
  best->is_named = true;
  return best->slot;
}

void Placer::Exclude(uint32_t domain) {
  std::erase_if(candidates_, [domain](const Candidate& one) { return one.domain == domain; });
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
