// Strangers: connections that have not said hello yet. Each is given a while to do so, and there
// are never very many: the one that has waited longest makes room.
//
// Thread safety: Create by any thread; all else on the loop's thread.
// Ownership: shared with the loop that watches its timer. Costs nothing while nobody waits.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>

#include "base/deadline.h"
#include "base/fd.h"
#include "base/status.h"
#include "transfer/loop.h"

namespace mooncake {

class Strangers : public Watcher, public std::enable_shared_from_this<Strangers> {
 public:
  static constexpr size_t kMax = 1024;

  static Result<std::shared_ptr<Strangers>> Create(double patience_s);

  void Start(Loop& loop);
  // `drop` is called once, later: it closes the connection unless that has said hello or is gone.
  void Add(std::function<void()> drop);
  void OnReady(uint64_t token, uint32_t events) override;

 private:
  struct Stranger {
    Deadline until;
    std::function<void()> drop;
  };

  Strangers(Fd timer, double patience_s) : timer_(std::move(timer)), patience_s_(patience_s) {}
  void DropFirst();
  void Arm();

  const Fd timer_;
  const double patience_s_;
  std::deque<Stranger> waiting_;
};

}  // namespace mooncake
