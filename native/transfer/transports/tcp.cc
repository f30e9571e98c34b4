#include "transfer/transports/tcp.h"

#include <algorithm>
#include <utility>

#include "base/random.h"
#include "transfer/slicer.h"
#include "transfer/transports/hash_copy.h"
#include "transfer/transports/tcp_spray.h"

namespace mooncake {
namespace {

constexpr double kAskSeconds = 1.0;  // on one path, where there are others

class TcpAttachment : public Attachment {
 public:
  TcpAttachment(const OpenReply& segment, std::shared_ptr<TcpTransport> transport)
      : Attachment(segment), transport_(std::move(transport)) {}

  std::string_view transport() const override { return "tcp"; }
  bool IsUsable() const override { return !transport_->IsEnded(); }
  Status Execute(Op op, std::span<const Piece> pieces, const BatchOptions& options) override {
    return transport_->Execute(op, segment_id(), pieces, options);
  }
  Status Notify(std::string_view data, const BatchOptions& options) override {
    return transport_->Notify(data, options);
  }

 private:
  const std::shared_ptr<TcpTransport> transport_;
};

// Answers of a living peer leave a connection in order only when it was asked one thing.
bool IsAnswer(const Status& status) {
  return status.ok() || status.code() == Code::kNotFound || status.code() == Code::kNotNotified;
}

bool Leads(const Route& route, const Address& local, const Address& remote) {
  const bool is_remote = route.remote.host == remote.host && route.remote.port == remote.port;
  return is_remote && (route.local.empty() || route.local == local.host);
}

// The routes from one of these hosts; all when there is none.
PathMask RoutesFrom(const std::vector<std::string>& hosts, const std::vector<Route>& routes) {
  PathMask found = 0;
  for (PathIndex path = 0; path < routes.size(); ++path) {
    const bool is_one = std::find(hosts.begin(), hosts.end(), routes[path].local) != hosts.end();
    if (is_one) found |= MaskOf(path);
  }
  return found == 0 ? kAllPaths : found;
}

}  // namespace

TcpTransport::TcpTransport(Target target, std::unique_ptr<TcpLane> first)
    : endpoint_(std::move(target.endpoint)),
      paths_(target.routes, target.hello, {.slice_bytes = target.slice_bytes}) {
  for (const auto& hosts : target.near) near_.push_back(RoutesFrom(hosts, target.routes));
  const auto local = LocalAddress(first->socket());
  const auto remote = PeerAddress(first->socket());
  for (PathIndex path = 0; local.ok() && remote.ok() && path < paths_.count(); ++path) {
    if (!Leads(paths_.route(path), local.value(), remote.value())) continue;
    paths_.Keep(path, std::move(first));
    break;
  }
  if (paths_.has_choice()) prober_.emplace(paths_);
}

TcpTransport::~TcpTransport() { paths_.Stop(Status(Code::kClosed, "the transport was closed")); }

Result<std::shared_ptr<Attachment>> TcpTransport::Open(uint64_t segment_id, Deadline deadline) {
  auto segment = Find({segment_id, ""}, deadline);
  if (!segment.ok()) return segment.status();
  return std::shared_ptr<Attachment>(
      std::make_shared<TcpAttachment>(segment.value(), shared_from_this()));
}

Result<OpenReply> TcpTransport::Find(const SegmentRef& ref, Deadline deadline) {
  const auto open = [&](TcpLane& lane, Patience patience) { return lane.Open(ref, patience); };
  return Ask(open, deadline);
}

// However often it is said under one number, it is heard once.
Status TcpTransport::Notify(std::string_view data, const BatchOptions& options) {
  const NumberedNote note{RandomId(), std::string(data)};
  const auto notify = [&](TcpLane& lane, Patience patience) -> Result<OpenReply> {
    Status status = lane.Notify(note, patience);
    if (!status.ok()) return status;
    return OpenReply{};
  };
  return Ask(notify, {options.deadline, options.cancel}).status();
}

// Again and again while the peer is merely slow.
Result<OpenReply> TcpTransport::Ask(const Question& question, Patience patience) {
  const TcpPaths::Visit visit(paths_);
  if (!visit.status().ok()) return visit.status();
  for (;;) {
    auto answer = AskOverAll(question, patience);
    const Code code = answer.status().code();
    if (code == Code::kTimeout && !patience.deadline.passed()) continue;
    if (answer.ok() || !paths_.end().ok()) return answer;
    if (code != Code::kWrongPeer) return Named(answer.status());
    return Named(Status(Code::kPeerUnreachable, "the engine that was here is gone"));
  }
}

// Asks on one path after the other, those that are up first, each twice: an idle connection may
// have died.
Result<OpenReply> TcpTransport::AskOverAll(const Question& question, Patience patience) {
  const PathMask up = paths_.Schedule([](const PathScheduler& one) { return one.up(); });
  Status last;
  for (PathIndex at = 0; at < 4 * paths_.count(); ++at) {
    const PathIndex path = at / 2 % paths_.count();
    const bool is_up = (up & MaskOf(path)) != 0;
    const bool is_first_round = at < 2 * paths_.count();
    if (is_up != is_first_round) continue;
    auto answer = AskOver(path, question, patience);
    if (!paths_.end().ok()) return paths_.end();
    const Code code = answer.status().code();
    const bool is_slow = code == Code::kTimeout && paths_.has_choice();
    const bool is_path = code == Code::kPeerUnreachable || code == Code::kWrongPeer || is_slow;
    last = answer.status();
    if (answer.ok()) return answer;
    if (!is_path) break;
  }
  return last;
}

Result<OpenReply> TcpTransport::AskOver(PathIndex path, const Question& question,
                                        Patience patience) {
  if (paths_.has_choice()) {
    const double left_s = patience.deadline.seconds_left();
    patience.deadline = Deadline::After(std::min(left_s, kAskSeconds));
  }
  auto taken = paths_.Take(path);
  if (!taken.ok()) return taken.status();
  std::unique_ptr<TcpLane> lane = std::move(taken).value();
  Status greeted;
  if (!lane->is_greeted()) greeted = lane->Greet(paths_.hello(), patience).status();
  Result<OpenReply> answer = greeted;
  if (greeted.ok()) answer = question(*lane, patience);
  if (answer.status().code() == Code::kFenced) paths_.Stop(answer.status());
  paths_.Return(path, std::move(lane), IsAnswer(answer.status()));
  return answer;
}

Status TcpTransport::Execute(Op op, uint64_t segment_id, std::span<const Piece> pieces,
                             const BatchOptions& options) {
  const TcpPaths::Visit visit(paths_);
  if (!visit.status().ok()) return visit.status();
  const std::vector<Piece> joined = Joined(pieces);
  TcpSpray spray(paths_, {op, segment_id, joined, Near(options.location)}, options);
  Status status = spray.Run();
  if (!status.ok()) return Named(status);
  std::fill(options.checksums.begin(), options.checksums.end(), 0);
  HashPieces(pieces, options.checksums);
  return status;
}

// The paths from addresses near that location; all when there is none.
PathMask TcpTransport::Near(int location) const {
  const bool is_known = location >= 0 && static_cast<size_t>(location) < near_.size();
  return is_known ? near_[static_cast<size_t>(location)] : kAllPaths;
}

// With the peer's name, where the status does not speak of a decision of this side.
Status TcpTransport::Named(const Status& status) const {
  switch (status.code()) {
    case Code::kPeerUnreachable:
    case Code::kTimeout:
    case Code::kWire:
      return Status(status).Of(endpoint_);
    default:
      return status;
  }
}

}  // namespace mooncake
