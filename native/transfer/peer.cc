#include "transfer/peer.h"

#include <algorithm>

namespace mooncake {
namespace {

// An owner that has just answered on TCP answers on its Unix socket too, or never.
constexpr double kUnixHelloSeconds = 2.0;

// The hosts that this engine listens on, if it has been given more than one.
std::vector<std::string> LocalHosts(const EngineOptions& options) {
  if (options.addresses.empty()) return {};
  std::vector<std::string> hosts = {ParseAddress(options.listen).value().host};
  for (const std::string& host : options.addresses) {
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end()) hosts.push_back(host);
  }
  return hosts;
}

// What the peer's answer on a first connection says about the ways to it.
Result<TcpTransport::Target> FindPaths(const std::string& endpoint, const Peer::Self& self,
                                       const TcpLane::Greeted& greeted) {
  auto answered = PeerAddress(greeted.lane->socket());
  if (!answered.ok()) return answered.status();
  TcpTransport::Target target{
      .endpoint = endpoint,
      .routes = PairAddresses(LocalHosts(self.options), ReadNetworks(),
                              Reachable(greeted.reply.endpoints, answered.value())),
      .hello = {self.peer_id, greeted.reply.engine_id},
      .slice_bytes = self.options.slice_bytes,
  };
  if (target.routes.size() > kMaxPaths) target.routes.resize(kMaxPaths);
  for (const auto& [location, hosts] : self.options.preferred) target.near.push_back(hosts);
  return target;
}

}  // namespace

Result<std::shared_ptr<Peer>> Peer::Connect(const std::string& endpoint, const Self& self,
                                            uint64_t engine_id, Deadline deadline) {
  auto address = ParseAddress(endpoint);
  if (!address.ok()) return address.status();
  auto greeted =
      TcpLane::Connect(address.value(), {self.peer_id, engine_id}, {deadline, self.ending.get()});
  if (!greeted.ok()) {
    const Status& status = greeted.status();
    return Status(status).Of(endpoint);
  }
  auto target = FindPaths(endpoint, self, greeted.value());
  if (!target.ok()) return target.status();
  auto& [lane, reply] = greeted.value();
  auto tcp = std::make_shared<TcpTransport>(std::move(target).value(), std::move(lane));
  return std::shared_ptr<Peer>(new Peer(endpoint, self, std::move(reply), std::move(tcp)));
}

Peer::Peer(std::string endpoint, Self self, HelloReply reply, std::shared_ptr<TcpTransport> tcp)
    : endpoint_(std::move(endpoint)),
      self_(std::move(self)),
      reply_(std::move(reply)),
      tcp_(std::move(tcp)) {}

Result<std::shared_ptr<Attachment>> Peer::Open(const SegmentRef& ref, Deadline deadline) {
  uint64_t segment_id = ref.id;
  if (segment_id == 0) {
    auto found = tcp_->Find(ref, deadline);
    if (!found.ok()) return found.status();
    segment_id = found.value().segment_id;
  }
  if (auto attachment = Cached(segment_id)) return attachment;
  auto attachment = OpenShm(segment_id, deadline);
  const Code code = attachment.status().code();
  const bool is_final = code == Code::kNotFound || code == Code::kFenced || deadline.passed();
  if (attachment.ok() || is_final) return attachment;
  return OpenTcp(segment_id, attachment.status().message(), deadline);
}

Result<std::shared_ptr<Attachment>> Peer::OpenShm(uint64_t segment_id, Deadline deadline) {
  auto shm = Shm(deadline);
  if (!shm.ok()) return shm.status();
  auto attachment = shm.value()->Open(segment_id, deadline);
  if (!attachment.ok()) return attachment;
  const std::lock_guard lock(mutex_);
  std::erase_if(shm_attachments_, [](const auto& entry) { return entry.second.expired(); });
  shm_attachments_.insert_or_assign(segment_id, attachment.value());
  return attachment;
}

Result<std::shared_ptr<Attachment>> Peer::OpenTcp(uint64_t segment_id, std::string reason,
                                                  Deadline deadline) {
  auto attachment = tcp_->Open(segment_id, deadline);
  if (attachment.ok()) attachment.value()->Explain(std::move(reason));
  return attachment;
}

void Peer::End(const Status& reason) {
  std::shared_ptr<ShmTransport> shm;
  {
    const std::lock_guard lock(mutex_);
    if (end_.ok()) end_ = reason;
    shm = shm_;
  }
  if (shm != nullptr) shm->End(reason);
  tcp_->End(reason);
}

std::vector<PathStatistics> Peer::Statistics() const {
  std::vector<PathStatistics> statistics;
  {
    const std::lock_guard lock(mutex_);
    if (shm_ != nullptr) shm_->AppendStatistics(statistics);
  }
  tcp_->AppendStatistics(statistics);
  for (PathStatistics& path : statistics) {
    path.peer = endpoint_;
    if (IsEnded()) path.state = "gone";
  }
  return statistics;
}

std::shared_ptr<Attachment> Peer::Cached(uint64_t segment_id) {
  std::shared_ptr<Attachment> attachment;
  {
    const std::lock_guard lock(mutex_);
    const auto found = shm_attachments_.find(segment_id);
    if (found != shm_attachments_.end()) attachment = found->second.lock();
  }
  return attachment != nullptr && attachment->IsUsable() ? attachment : nullptr;
}

Result<std::shared_ptr<ShmTransport>> Peer::Shm(Deadline deadline) {
  const auto none = [](const char* reason) { return Status(Code::kUnavailable, reason); };
  if (reply_.host_id != self_.host_id) return none("the peer is on another host");
  if (self_.options.same_host != SameHost::kShm)
    return none("the peer is on this host, and same_host is network");
  if (reply_.unix_name.empty()) return none("the peer lets nobody on its host map its memory");
  {
    const std::lock_guard lock(mutex_);
    if (!end_.ok()) return end_;
    if (shm_ != nullptr && !shm_->IsEnded()) return shm_;
  }
  const Deadline soon = Deadline::After(std::min(kUnixHelloSeconds, deadline.seconds_left()));
  auto shm = ShmTransport::Connect(reply_.unix_name, {self_.peer_id, reply_.engine_id}, self_.loop,
                                   self_.copy_team, soon);
  if (!shm.ok()) return shm;
  Status end;
  {
    const std::lock_guard lock(mutex_);
    end = end_;
    if (end.ok() && (shm_ == nullptr || shm_->IsEnded())) shm_ = shm.value();
    if (end.ok() && shm_ == shm.value()) return shm_;
  }
  // Another thread was faster, or the peer was ended meanwhile.
  shm.value()->End(Status(Code::kClosed, "a second connection"));
  if (!end.ok()) return end;
  const std::lock_guard lock(mutex_);
  return shm_;
}

}  // namespace mooncake
