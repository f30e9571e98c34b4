#include "store/session.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace mooncake::store {
namespace {

constexpr double kFirstPeriod_s = 0.2;  // while the master is away
constexpr double kRelease_s = 0.02;
constexpr int kHellos = 3;  // a fenced peer id takes one more each

}  // namespace

Session::Session(std::shared_ptr<Engine> engine, std::string master, double timeout_s)
    : engine_(std::move(engine)), master_(std::move(master)), timeout_s_(timeout_s) {
  thread_ = std::thread([this] { Run(); });
}

void Session::Close() {
  {
    std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  closing_.notify_all();
  if (!thread_.joinable()) return;
  thread_.join();
  const SessionId id = Snapshot().id;
  // A courtesy: a master that does not hear it notices by the silence.
  if (id != 0) (void)master_.Notify(MessageType::kGoodbye, One{id}, Deadline::After(0.5));
}

bool Session::is_closed() const {
  std::lock_guard lock(mutex_);
  return is_closed_;
}

Session::Identity Session::Snapshot() const {
  std::lock_guard lock(mutex_);
  return identity_;
}

Result<Session::Identity> Session::Current() {
  {
    std::lock_guard lock(mutex_);
    if (is_closed_) return Status(Code::kClosed, "the store client is closed");
    if (identity_.id != 0 && identity_.peer_id == engine_->peer_id()) return identity_;
  }
  return SayHello(CallDeadline());
}

Result<Session::Identity> Session::SayHello(Deadline deadline) {
  std::lock_guard one_at_a_time(hello_);
  Identity old = Snapshot();
  if (old.id != 0 && old.peer_id == engine_->peer_id()) return old;
  for (int tries = 0; tries < kHellos; ++tries) {
    const uint64_t peer_id = engine_->peer_id();
    Hello hello;
    hello.previous = old.id;
    hello.peer_id = peer_id;
    hello.host_id = engine_->host_id();
    auto reply = master_.Call<HelloReply>(MessageType::kHello, hello, deadline);
    if (!reply.ok()) return reply.status();
    const HelloReply& answer = reply.value();
    if (answer.is_fenced) {
      Rotate(peer_id);
      continue;
    }
    std::lock_guard lock(mutex_);
    identity_ = {answer.session, peer_id, answer.epoch, answer.client_ttl_s, answer.lease_s};
    epoch_.store(answer.epoch);
    for (const auto& [lease, clock] : leases_) clock->end_s.store(0);  // ended with the old session
    leases_.clear();
    released_.clear();
    aborts_.clear();
    return identity_;
  }
  return Status(Code::kFenced, "the master refuses every peer id of this process as fenced");
}

void Session::Forget(SessionId id) {
  std::lock_guard lock(mutex_);
  if (identity_.id == id) identity_.id = 0;
}

void Session::Rotate(uint64_t peer_id) {
  if (engine_->peer_id() == peer_id) (void)engine_->Rotate();
}

std::shared_ptr<LeaseClock> Session::Hold(SessionId id, uint64_t lease, double end_s, bool is_pin) {
  auto clock = std::make_shared<LeaseClock>();
  clock->is_pin = is_pin;
  std::lock_guard lock(mutex_);
  if (identity_.id != id) return clock;
  clock->end_s.store(end_s);
  leases_[lease] = clock;
  return clock;
}

void Session::Release(SessionId id, uint64_t lease) {
  {
    std::lock_guard lock(mutex_);
    if (identity_.id != id) return;  // it has ended; a lease of today may have its number
    leases_.erase(lease);
    released_.push_back(lease);
    if (std::exchange(is_release_due_, true)) return;
  }
  closing_.notify_all();
}

std::vector<uint64_t> Session::TakeReleased(SessionId id) {
  std::lock_guard lock(mutex_);
  return identity_.id == id ? std::exchange(released_, {}) : std::vector<uint64_t>();
}

void Session::AbortLater(SessionId id, PutAbort::Item put) {
  std::lock_guard lock(mutex_);
  if (identity_.id == id) aborts_.push_back(std::move(put));
}

// Beats in time, and says what was released when no lookup has said it.
void Session::Run() {
  std::unique_lock lock(mutex_);
  while (!is_closed_) {
    lock.unlock();
    const bool is_well = Beat().ok();
    lock.lock();
    const bool has_period = is_well && identity_.client_ttl_s > 0;
    const double period_s = std::min(identity_.client_ttl_s / 4, identity_.lease_s / 3);
    const Deadline next = Deadline::After(has_period ? period_s : kFirstPeriod_s);
    while (!is_closed_ && !next.passed()) {
      closing_.wait_until(lock, next.time(), [this] { return is_closed_ || is_release_due_; });
      if (is_closed_ || !is_release_due_) continue;
      const auto soon = std::chrono::duration<double>(kRelease_s);
      closing_.wait_for(lock, soon, [this] { return is_closed_; });
      is_release_due_ = false;
      lock.unlock();
      SendReleased();
      lock.lock();
    }
  }
}

// If it is lost, the leases end by themselves.
void Session::SendReleased() {
  const SessionId id = Snapshot().id;
  store::Release release{id, TakeReleased(id)};
  if (release.leases.empty()) return;
  (void)master_.Notify(MessageType::kRelease, release, CallDeadline());
}

Status Session::Beat() {
  const Identity identity = Snapshot();
  const Deadline deadline = Deadline::After(std::min(timeout_s_, 2.0));
  if (identity.id == 0 || identity.peer_id != engine_->peer_id()) {
    return SayHello(deadline).status();
  }
  const double now_s = MonotonicSeconds();
  Heartbeat beat{identity.id, {}};
  {
    std::lock_guard lock(mutex_);
    for (const auto& [lease, clock] : leases_) {
      if (!clock->is_pin && clock->end_s.load() > now_s) beat.leases.push_back(lease);
    }
  }
  auto reply = master_.Call<HeartbeatReply>(MessageType::kHeartbeat, beat, deadline);
  if (!reply.ok()) return reply.status();
  if (!reply.value().is_known) {
    Forget(identity.id);
    return SayHello(deadline).status();
  }
  {
    std::lock_guard lock(mutex_);
    for (const uint64_t lease : beat.leases) {
      const auto& ended = reply.value().ended;
      const auto held = leases_.find(lease);
      if (held == leases_.end()) continue;
      const bool is_ended = std::find(ended.begin(), ended.end(), lease) != ended.end();
      held->second->end_s.store(is_ended ? 0 : now_s + identity.lease_s);
    }
  }
  SendAborts(identity);
  return Status::Ok();
}

void Session::SendAborts(const Identity& identity) {
  PutAbort abort{identity.id, {}};
  {
    std::lock_guard lock(mutex_);
    if (identity_.id != identity.id) return;
    const auto rest = aborts_.begin() + std::min<size_t>(aborts_.size(), kMaxBatch);
    abort.items.assign(aborts_.begin(), rest);
    aborts_.erase(aborts_.begin(), rest);
  }
  if (abort.items.empty()) return;
  auto reply = master_.Call<PutEndReply>(MessageType::kPutAbort, abort, CallDeadline());
  if (reply.ok()) return;
  for (auto& item : abort.items) AbortLater(identity.id, std::move(item));
}

}  // namespace mooncake::store
