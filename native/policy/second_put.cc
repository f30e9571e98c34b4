#include "policy/second_put.h"

#include <algorithm>
#include <bit>

#include "base/check.h"

namespace mooncake {
namespace {

constexpr uint64_t kBitsPerKey = 16;
constexpr int kProbes = 4;

// Callers' hashes may be weak. The finalizer of splitmix64 (Steele, Lea, Flood 2014).
uint64_t Mix(uint64_t hash) {
  hash = (hash ^ (hash >> 30)) * 0xbf58476d1ce4e5b9;
  hash = (hash ^ (hash >> 27)) * 0x94d049bb133111eb;
  return hash ^ (hash >> 31);
}

// Calls `probe` with a word's index and its bit for each probe, until it returns false.
template <typename Probe>
bool ForProbes(size_t words, uint64_t hash, const Probe& probe) {
  const uint64_t first = Mix(hash), step = Mix(first) | 1;
  for (int i = 0; i < kProbes; ++i) {
    const uint64_t bit = (first + i * step) & (words * 64 - 1);
    if (!probe(bit / 64, 1ull << (bit % 64))) return false;
  }
  return true;
}

}  // namespace

SecondPutAdmission::SecondPutAdmission(const AdmissionOptions& options) : options_(options) {
  MC_CHECK(options.window_s > 0 && options.keys > 0 && options.keys <= kMaxKeys, "options");
  new_.resize(std::max<uint64_t>(std::bit_ceil(options.keys) * kBitsPerKey / 64, 1));
  old_.resize(new_.size());
}

bool SecondPutAdmission::Admit(uint64_t key_hash, uint64_t, double now_s) {
  Forget(now_s);
  if (Has(new_, key_hash) || Has(old_, key_hash)) return true;
  if (added_ == options_.keys) Rotate(now_s);
  Add(new_, key_hash);
  ++added_;
  return false;
}

// However rarely it is called, what is two windows old is forgotten.
void SecondPutAdmission::Forget(double now_s) {
  const double age_s = now_s - since_s_;
  if (age_s < options_.window_s) return;
  const bool is_over = age_s >= 2 * options_.window_s;
  Rotate(is_over ? now_s : since_s_ + options_.window_s);
  if (is_over) std::fill(old_.begin(), old_.end(), 0);
}

void SecondPutAdmission::Rotate(double since_s) {
  new_.swap(old_);
  std::fill(new_.begin(), new_.end(), 0);
  added_ = 0;
  since_s_ = since_s;
}

bool SecondPutAdmission::Has(const Filter& filter, uint64_t hash) {
  return ForProbes(filter.size(), hash,
                   [&](size_t word, uint64_t bit) { return (filter[word] & bit) != 0; });
}

void SecondPutAdmission::Add(Filter& filter, uint64_t hash) {
  ForProbes(filter.size(), hash, [&](size_t word, uint64_t bit) {
    filter[word] |= bit;
    return true;
  });
}

}  // namespace mooncake
