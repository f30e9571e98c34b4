#include "store/node.h"

#include <algorithm>
#include <chrono>
#include <utility>
#include <vector>

namespace mooncake::store {
namespace {

constexpr double kCall_s = 2;      // the longest that a heartbeat waits for its answer
constexpr double kFence_s = 0.25;  // the longest that one fence holds up the others
constexpr double kRetry_s = 0.2;   // first pause while the master is away; doubles up to 1 s
// For how long a name may be taken by a node that is dead: until it is lost, and as long again for
// a master that stands still now and then, and for the pauses here.
double PatienceFor(double client_ttl_s) { return 2 * kNodeLostAfter * client_ttl_s + 2; }

}  // namespace

Result<std::unique_ptr<Node>> Node::Start(std::shared_ptr<Engine> engine,
                                          const NodeOptions& options) {
  std::unique_ptr<Node> node(new Node(std::move(engine), options));
  MC_RETURN_IF_ERROR(node->TakeMemory());
  node->heartbeat_ = std::thread([raw = node.get()] { raw->Run(); });
  node->fencer_ = std::thread([raw = node.get()] { raw->RunFences(); });
  return node;
}

Node::Node(std::shared_ptr<Engine> engine, const NodeOptions& options)
    : engine_(std::move(engine)),
      options_(options),
      master_(options.master),
      copier_(engine_, [this] { TellSoon(); }) {}

void Node::Close() {
  {
    std::lock_guard lock(mutex_);
    if (std::exchange(is_closed_, true)) return;
  }
  changed_.notify_all();
  if (heartbeat_.joinable()) heartbeat_.join();
  if (fencer_.joinable()) fencer_.join();
  std::shared_ptr<Segment> segment;
  {
    std::lock_guard lock(mutex_);
    segment = std::move(segment_);
  }
  if (segment == nullptr) return;
  if (epoch_ != 0) {
    // A courtesy: a master that does not hear it notices by the silence.
    (void)master_.Notify(MessageType::kNodeGoodbye, One{segment->id()}, Deadline::After(0.5));
  }
  copier_.Forget();
  engine_->CloseSegment(*segment);
}

uint64_t Node::epoch() const {
  std::lock_guard lock(mutex_);
  return epoch_;
}

NodeId Node::id() const {
  std::lock_guard lock(mutex_);
  return segment_ == nullptr ? 0 : segment_->id();
}

std::string Node::refusal() const {
  std::lock_guard lock(mutex_);
  return refusal_;
}

double Node::unanswered_s() const {
  std::lock_guard lock(mutex_);
  return unanswered_since_s_ == 0 ? 0 : MonotonicSeconds() - unanswered_since_s_;
}

bool Node::has_given_up() const {
  std::lock_guard lock(mutex_);
  return has_given_up_;
}

// Drops the old segment before it takes the new one, so that both need not fit.
Status Node::TakeMemory() {
  std::shared_ptr<Segment> old;
  {
    std::lock_guard lock(mutex_);
    old = std::move(segment_);
    epoch_ = 0;
    to_fence_.clear();
    fenced_.clear();
  }
  copier_.Forget();
  if (old != nullptr) engine_->CloseSegment(*old);
  old = nullptr;
  auto segment = engine_->CreateSegment(options_.capacity_bytes);
  if (!segment.ok()) return segment.status();
  std::lock_guard lock(mutex_);
  segment_ = std::move(segment).value();
  is_virgin_ = true;
  refused_by_ = 0;
  return Status::Ok();
}

void Node::Run() {
  double pause_s = kRetry_s;
  for (;;) {
    const Status status = Exchange();
    std::unique_lock lock(mutex_);
    pause_s = status.ok() ? kRetry_s : std::min(pause_s * 2, 1.0);
    const std::chrono::duration<double> wait(status.ok() ? period_s_ : pause_s);
    // A fence or a copy that is done is reported at once: others wait for it.
    changed_.wait_for(lock, wait, [&] { return is_closed_ || has_news_ || has_given_up_; });
    if (is_closed_ || has_given_up_) return;
  }
}

// One heartbeat; when the master does not know this node, new memory and its announcement.
Status Node::Exchange() {
  NodeHeartbeat beat;
  {
    std::lock_guard lock(mutex_);
    beat.node = epoch_ == 0 || segment_ == nullptr ? 0 : segment_->id();
    beat.fenced.assign(fenced_.begin(), fenced_.end());
    beat.finished = copier_.Finished();
    has_news_ = false;
  }
  auto reply = master_.Call<NodeReply>(MessageType::kNodeHeartbeat, beat, Deadline::After(kCall_s));
  if (!reply.ok()) return Unreached(reply.status());
  {
    std::lock_guard lock(mutex_);
    unanswered_since_s_ = 0;
  }
  if (!reply.value().is_known) return Announce(reply.value().epoch);
  Obey(std::move(reply).value());
  return Status::Ok();
}

Status Node::Announce(uint64_t epoch) {
  const bool is_others = refused_by_ != 0 && refused_by_ != epoch;
  if (!is_virgin_ || is_others || segment_ == nullptr) MC_RETURN_IF_ERROR(TakeMemory());
  is_virgin_ = false;
  const NodeRegister hello{.node = segment_->id(),
                           .epoch = epoch,
                           .endpoint = engine_->endpoint(),
                           .host_id = engine_->host_id(),
                           .name = options_.name,
                           .domain = options_.domain,
                           .capacity_bytes = segment_->size_bytes()};
  auto reply = master_.Call<NodeReply>(MessageType::kNodeRegister, hello, Deadline::After(kCall_s));
  if (!reply.ok()) return Unreached(reply.status());
  if (!reply.value().is_known) return Refused(reply.value());
  std::lock_guard lock(mutex_);
  epoch_ = reply.value().epoch;
  period_s_ = reply.value().client_ttl_s / 4;
  refusal_.clear();
  patience_.reset();
  return Status::Ok();
}

// Nobody may have the segment from a master that refused it, so that it can be offered again.
Status Node::Refused(const NodeReply& reply) {
  std::lock_guard lock(mutex_);
  refusal_ = reply.problem;
  if (reply.refusal == NodeRefusal::kNameTaken) {
    is_virgin_ = true;
    refused_by_ = reply.epoch;
    if (!patience_) patience_ = Deadline::After(PatienceFor(reply.client_ttl_s));
  }
  has_given_up_ = reply.refusal == NodeRefusal::kInvalid || (patience_ && patience_->passed());
  return {Code::kUnavailable, "the master refused this node: " + reply.problem};
}

// While the master is away nobody is refused.
Status Node::Unreached(Status status) {
  std::lock_guard lock(mutex_);
  if (unanswered_since_s_ == 0) unanswered_since_s_ = MonotonicSeconds();
  refusal_.clear();
  patience_.reset();
  return status;
}

void Node::Obey(NodeReply reply) {
  std::lock_guard lock(mutex_);
  copier_.Obey(segment_, std::move(reply.orders));
  const std::set<uint64_t> asked(reply.fence.begin(), reply.fence.end());
  // What the master no longer asks for it has heard of.
  std::erase_if(fenced_, [&](uint64_t peer_id) { return !asked.contains(peer_id); });
  to_fence_.clear();
  std::set_difference(asked.begin(), asked.end(), fenced_.begin(), fenced_.end(),
                      std::inserter(to_fence_, to_fence_.end()));
  if (!to_fence_.empty()) changed_.notify_all();
}

void Node::TellSoon() {
  std::lock_guard lock(mutex_);
  has_news_ = true;
  changed_.notify_all();
}

// A writer that lives on but does not move keeps its fence waiting; the others take turns with it.
void Node::RunFences() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return is_closed_ || !to_fence_.empty(); });
    if (is_closed_) return;
    const std::vector<uint64_t> round(to_fence_.begin(), to_fence_.end());
    for (const uint64_t peer_id : round) {
      lock.unlock();
      const auto done = engine_->Fence(peer_id, Deadline::After(kFence_s));
      lock.lock();
      if (is_closed_ || done.status().code() == Code::kClosed) return;
      if (!done.ok() || !done.value() || to_fence_.erase(peer_id) == 0) continue;
      fenced_.insert(peer_id);
      has_news_ = true;
      changed_.notify_all();
    }
  }
}

}  // namespace mooncake::store
