// Eviction: in which order cached things go when room is needed. Pure. Things are named by dense
// 32-bit ids, chosen by the owner and used again, which index 12 bytes of state each.
//
// Thread safety: none; one owner.
// Invariants (`Check`): an id is in one class; CountOf says how many are; Victim and Next name each
// id of the classes up to their limit once, those of a lower class first, and held ones never.
// All operations take constant time, amortized over calls.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "policy/id_lists.h"

namespace mooncake {

// Victims come from the first of these that has any.
enum class EvictionClass : uint8_t {
  kExtra = 0,       // a copy more than was asked for
  kLeaf = 1,        // nothing depends on it
  kInterior = 2,    // others are of use only with it
  kSoftPinned = 3,  // its writer asked to keep it if possible
  kHeld = 4,        // never a victim
};
inline constexpr int kEvictionClasses = 5;

// What its owner knows about a thing and a policy may go by.
struct EvictionTraits {
  uint32_t depth = 0;  // how many stand before it in its chain
};

class Eviction {
 public:
  static constexpr uint32_t kNone = IdLists::kNone;
  static constexpr uint32_t kMaxId = IdLists::kMaxId;

  virtual ~Eviction() = default;
  Eviction(const Eviction&) = delete;
  Eviction& operator=(const Eviction&) = delete;

  // REQUIRES: the id is not there, and at most kMaxId.
  void Insert(uint32_t id, EvictionClass in, const EvictionTraits& traits = {});
  // It was used; once a use, whatever its class. A held one comes back as one that was used.
  // REQUIRES of this and all below: the id is there.
  void Touch(uint32_t id);
  // Where the policy goes by use, what comes from another class (from being held, say) is last in
  // the new one. `goes_next`: it is the first victim of its class instead, in lfu of those of its
  // frequency. Without it, a class that is the id's already changes nothing.
  void SetClass(uint32_t id, EvictionClass to, bool goes_next = false);
  void Remove(uint32_t id);

  // Who goes first, of the classes up to and with `limit`; kNone: nobody. It stays until Remove.
  uint32_t Victim(EvictionClass limit = EvictionClass::kSoftPinned);
  // Who goes after that one. REQUIRES: `id` is not held.
  uint32_t Next(uint32_t id, EvictionClass limit = EvictionClass::kSoftPinned);

  bool Contains(uint32_t id) const { return ids_.Covers(id) && ids_.mark(id) % kMarks != 0; }
  EvictionClass ClassOf(uint32_t id) const {
    return static_cast<EvictionClass>(ids_.mark(id) % kMarks - 1);
  }
  uint32_t CountOf(EvictionClass in) const { return counts_[static_cast<int>(in)]; }
  uint64_t count() const;

  // Ends the process if an invariant does not hold. Linear; for tests.
  void Check();

 protected:
  // A mark is the class plus one, 0 when the id is not there; the bits above are the variant's.
  static constexpr uint32_t kMarks = 8;

  explicit Eviction(int lists) : ids_(lists) {}

  virtual void Added(uint32_t id, const EvictionTraits& traits) = 0;
  virtual void Used(uint32_t id) = 0;
  // ClassOf(id) is the new class already.
  virtual void Moved(uint32_t id, EvictionClass from, bool goes_next) = 0;
  virtual void Leaving(uint32_t id) = 0;
  virtual uint32_t FirstOf(EvictionClass in) = 0;
  virtual uint32_t AfterInClass(uint32_t id) = 0;

  IdLists ids_;

 private:
  uint32_t FirstFrom(int from, EvictionClass limit);
  void SetMark(uint32_t id, EvictionClass in);

  std::array<uint32_t, kEvictionClasses> counts_{};
};

// The policies by name: lru, fifo, lfu. An unknown name's error lists them.
[[nodiscard]] Result<std::unique_ptr<Eviction>> MakeEviction(std::string_view name);
std::vector<std::string> EvictionNames();

}  // namespace mooncake
