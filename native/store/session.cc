#include "store/session.h"

#include <algorithm>
#include <chrono>
#include <iterator>
#include <utility>

namespace mooncake::store {
namespace {

constexpr double kFirstPeriod_s = 0.2;  // while the master is away
constexpr double kRelease_s = 0.02;
// How long the heartbeat's thread waits for an answer at most, of the time after which a silent
// client is given up: what may be lost between two beats that are heard is less than all of it.
constexpr double kBeatShare = 0.25;
constexpr double kAsideShare = 0.125;  // for what is said besides
constexpr double kLongestBeat_s = 2;
constexpr int kHellos = 3;  // a fenced peer id takes one more each
constexpr size_t kMaxAborts = 1 << 16;

// The first ones, as many as one message takes.
template <typename T>
std::vector<T> TakeSome(std::vector<T>& all) {
  if (all.size() <= kMaxBatch) return std::exchange(all, {});
  const auto end = all.begin() + kMaxBatch;
  std::vector<T> some(std::make_move_iterator(all.begin()), std::make_move_iterator(end));
  all.erase(all.begin(), end);
  return some;
}

}  // namespace

Session::Session(std::shared_ptr<Engine> engine, std::string master, double timeout_s)
    : engine_(std::move(engine)), master_(std::move(master)), timeout_s_(timeout_s) {
  thread_ = std::thread([this] { Run(); });
}

void Session::Close() {
  bool stays = false;
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(is_closed_, true)) return;
    ReleaseAllButPins();
    stays = !IsOver();
  }
  closing_.notify_all();
  if (!stays) thread_.join();
}

// Who had a pin shared this; what is still held nobody can read any more.
Session::~Session() {
  Close();
  {
    const std::lock_guard lock(mutex_);
    EndLeases();
  }
  closing_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Session::SayGoodbye() {
  const SessionId id = Snapshot().id;
  // A courtesy: a master that does not hear it notices by the silence.
  if (id != 0) {
    SendReleased();
    (void)master_.Notify(MessageType::kGoodbye, One{id}, Deadline::After(0.5));
  }
  master_.Close();
}

// REQUIRES: mutex_ is held.
bool Session::IsOver() const {
  if (!is_closed_) return false;
  return identity_.id == 0 || (pin_questions_ == 0 && leases_.empty());
}

// What is read is over; a pin is its view's to end.
// REQUIRES: mutex_ is held.
void Session::ReleaseAllButPins() {
  std::erase_if(leases_, [this](const auto& held) {
    held.second->end_s.store(0);
    if (!held.second->is_pin) released_.push_back(held.first);
    return !held.second->is_pin;
  });
  is_release_due_ = is_release_due_ || !released_.empty();
}

Status Session::CheckOpen() const {
  std::lock_guard lock(mutex_);
  return CheckOpenLocked();
}

// REQUIRES: mutex_ is held.
Status Session::CheckOpenLocked() const {
  return is_closed_ ? Status(Code::kClosed, "the store client is closed") : engine_->CheckOpen();
}

Session::Identity Session::Snapshot() const {
  std::lock_guard lock(mutex_);
  return identity_;
}

Result<Session::Identity> Session::Current() {
  {
    std::lock_guard lock(mutex_);
    MC_RETURN_IF_ERROR(CheckOpenLocked());
    if (identity_.id != 0 && identity_.peer_id == engine_->peer_id()) return identity_;
  }
  return SayHello(CallDeadline());
}

Result<Session::Identity> Session::SayHello(Deadline deadline) {
  MC_RETURN_IF_ERROR(CheckOpen());
  {
    std::unique_lock lock(mutex_);
    const auto may_speak = [this] { return !is_saying_hello_; };
    if (!hello_ended_.wait_until(lock, deadline.time(), may_speak)) {
      return Status(Code::kUnavailable,
                    "the master at " + master_.address() + " did not answer another hello in time");
    }
    is_saying_hello_ = true;
  }
  auto identity = Introduce(deadline);
  {
    const std::lock_guard lock(mutex_);
    is_saying_hello_ = false;
  }
  hello_ended_.notify_one();
  return identity;
}

Result<Session::Identity> Session::Introduce(Deadline deadline) {
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
    if (is_closed_) return Status(Code::kClosed, "the store client is closed");
    identity_ = {answer.session, peer_id, answer.epoch, answer.client_ttl_s, answer.lease_s};
    epoch_.store(answer.epoch);
    EndLeases();
    released_.clear();
    released_pins_.clear();
    aborts_.clear();
    last_lease_ = 0;
    return identity_;
  }
  return Status(Code::kFenced, "the master refuses every peer id of this process as fenced");
}

// Those of a session that has ended, or is about to.
// REQUIRES: mutex_ is held.
void Session::EndLeases() {
  for (const auto& [lease, clock] : leases_) clock->end_s.store(0);
  leases_.clear();
}

void Session::Forget(SessionId id) {
  {
    std::lock_guard lock(mutex_);
    if (identity_.id != id) return;
    identity_.id = 0;
    if (!is_closed_) return;
  }
  closing_.notify_all();
}

void Session::Rotate(uint64_t peer_id) {
  if (engine_->peer_id() == peer_id) (void)engine_->Rotate();
}

std::shared_ptr<LeaseClock> Session::Hold(SessionId id, uint64_t lease, double end_s, bool is_pin) {
  auto clock = std::make_shared<LeaseClock>();
  clock->is_pin = is_pin;
  std::lock_guard lock(mutex_);
  if (identity_.id != id || (is_closed_ && !is_pin)) return clock;
  if (!is_closed_) clock->end_s.store(end_s);
  leases_[lease] = clock;
  return clock;
}

void Session::Release(SessionId id, uint64_t lease) {
  {
    std::lock_guard lock(mutex_);
    if (identity_.id != id) return;  // it has ended; a lease of today may have its number
    const auto held = leases_.find(lease);
    if (held != leases_.end() && held->second->is_pin) released_pins_.push_back(lease);
    if (held != leases_.end()) leases_.erase(held);
    released_.push_back(lease);
    if (std::exchange(is_release_due_, true)) return;
  }
  closing_.notify_all();
}

std::vector<uint64_t> Session::TakeReleased(SessionId id) {
  std::lock_guard lock(mutex_);
  return identity_.id == id ? TakeSome(released_) : std::vector<uint64_t>();
}

Session::PinQuestion::PinQuestion(Session& session) : session_(session) {
  std::lock_guard lock(session_.mutex_);
  ++session_.pin_questions_;
}

Session::PinQuestion::~PinQuestion() {
  {
    std::lock_guard lock(session_.mutex_);
    --session_.pin_questions_;
    if (!session_.is_closed_) return;
  }
  session_.closing_.notify_all();
}

void Session::AbortLater(SessionId id, PutAbort::Item put) {
  std::lock_guard lock(mutex_);
  if (identity_.id != id) return;
  aborts_.push_back(std::move(put));
  // The master has been away for long, or is of no use: with the session all of them end.
  if (aborts_.size() > kMaxAborts) identity_.id = 0;
}

// Beats in time, and says what was released when no lookup has said it.
void Session::Run() {
  std::unique_lock lock(mutex_);
  while (!IsOver()) {
    lock.unlock();
    const bool is_well = Beat().ok();
    lock.lock();
    is_release_due_ = is_release_due_ || !released_pins_.empty();
    const bool has_period = is_well && identity_.client_ttl_s > 0;
    const double period_s = std::min(identity_.client_ttl_s / 4, identity_.lease_s / 3);
    const Deadline next = Deadline::After(has_period ? period_s : kFirstPeriod_s);
    while (!IsOver() && !next.passed()) {
      closing_.wait_until(lock, next.time(), [this] { return IsOver() || is_release_due_; });
      if (IsOver() || !is_release_due_) continue;
      const auto soon = std::chrono::duration<double>(kRelease_s);
      closing_.wait_for(lock, soon, [this] { return IsOver(); });
      is_release_due_ = false;
      lock.unlock();
      SendReleased();
      lock.lock();
    }
  }
  lock.unlock();
  SayGoodbye();
}

// Of what the heartbeat's thread asks, so that no lost answer keeps it silent for long.
Deadline Session::BeatDeadline(const Identity& identity, double share) const {
  const double limit_s = std::min(timeout_s_, kLongestBeat_s);
  const bool has_ttl = identity.id != 0 && identity.client_ttl_s > 0;
  return Deadline::After(has_ttl ? std::min(limit_s, identity.client_ttl_s * share) : limit_s);
}

// Leases that the master does not hear of end by themselves. Pins do not: it is told until it has
// heard.
void Session::SendReleased() {
  const Identity identity = Snapshot();
  const Deadline deadline = BeatDeadline(identity, kAsideShare);
  store::Release release{identity.id, {}};
  for (;;) {
    release.leases = TakeReleased(release.session);
    if (release.leases.empty()) break;
    (void)master_.Notify(MessageType::kRelease, release, deadline);
  }
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (identity_.id != release.session) return;
      release.leases = TakeSome(released_pins_);
    }
    if (release.leases.empty()) return;
    if (master_.Tell(MessageType::kRelease, release, deadline).ok()) continue;
    std::lock_guard lock(mutex_);
    if (identity_.id != release.session) return;
    released_pins_.insert(released_pins_.end(), release.leases.begin(), release.leases.end());
    return;
  }
}

Status Session::Beat() {
  const Identity identity = Snapshot();
  const Deadline deadline = BeatDeadline(identity, kBeatShare);
  const bool is_past = identity.peer_id != engine_->peer_id() && CheckOpen().ok();
  if (identity.id == 0 || is_past) {
    return SayHello(deadline).status();
  }
  const double now_s = MonotonicSeconds();
  const auto beats = Beats(identity.id, now_s);
  auto replies = master_.CallAll<HeartbeatReply>(MessageType::kHeartbeat, beats, deadline);
  if (!replies.ok()) return replies.status();
  if (!std::ranges::all_of(replies.value(), &HeartbeatReply::is_known)) {
    Forget(identity.id);
    return SayHello(deadline).status();
  }
  for (size_t at = 0; at < beats.size(); ++at) {
    Renew(beats[at].leases, replies.value()[at].ended, now_s + identity.lease_s);
  }
  {
    std::lock_guard lock(mutex_);
    if (identity_.id == identity.id) last_lease_ = replies.value().back().last_lease;
  }
  SendAborts(identity);
  return Status::Ok();
}

// What is to be said, at least that this process is there.
std::vector<Heartbeat> Session::Beats(SessionId id, double now_s) const {
  std::vector<Heartbeat> beats{{id, {}, {}, 0, 0}};
  std::lock_guard lock(mutex_);
  for (const auto& [lease, clock] : leases_) {
    if (clock->is_pin || clock->end_s.load() <= now_s) continue;
    if (beats.back().leases.size() == kMaxBatch) beats.push_back({id, {}, {}, 0, 0});
    beats.back().leases.push_back(lease);
  }
  if (last_lease_ != 0 && pin_questions_ == 0) ListPins(beats);
  return beats;
}

// Each message says all there is in a range of numbers.
void Session::ListPins(std::vector<Heartbeat>& beats) const {
  size_t at = 0;
  for (const auto& [lease, clock] : leases_) {
    if (!clock->is_pin || lease > last_lease_) continue;
    if (beats[at].pins.size() == kMaxBatch) {
      const uint64_t last = beats[at].pins_upto = beats[at].pins.back();
      if (++at == beats.size()) beats.push_back({beats[0].session, {}, {}, 0, 0});
      beats[at].pins_after = last;
    }
    beats[at].pins.push_back(lease);
  }
  beats[at].pins_upto = last_lease_;
}

void Session::Renew(std::span<const uint64_t> leases, std::span<const uint64_t> ended,
                    double end_s) {
  std::lock_guard lock(mutex_);
  for (const uint64_t lease : leases) {
    const auto held = leases_.find(lease);
    if (held == leases_.end()) continue;
    const bool is_ended = std::ranges::find(ended, lease) != ended.end();
    held->second->end_s.store(is_ended ? 0 : end_s);
  }
}

void Session::SendAborts(const Identity& identity) {
  const Deadline deadline = BeatDeadline(identity, kAsideShare);
  PutAbort abort{identity.id, {}};
  for (;;) {
    {
      std::lock_guard lock(mutex_);
      if (identity_.id != identity.id) return;
      abort.items = TakeSome(aborts_);
    }
    if (abort.items.empty()) return;
    if (master_.Tell(MessageType::kPutAbort, abort, deadline).ok()) continue;
    for (auto& item : abort.items) AbortLater(identity.id, std::move(item));
    return;
  }
}

}  // namespace mooncake::store
