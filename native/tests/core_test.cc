// A random walk over the master's rules, whose invariants are checked after each step.
#include <array>
#include <string>
#include <unordered_map>
#include <vector>

#include "store/dispatch.h"
#include "store/master_core.h"
#include "tests/test.h"

namespace mooncake::store {
namespace {

constexpr uint64_t kCoreEpoch = 7;
constexpr uint64_t kNodeBytes = 256 << 10;
constexpr std::array<uint64_t, 7> kSizes{0, 1, 100, 5'000, 40'000, 90'000, 300'000};

// splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, 2014).
class Dice {
 public:
  explicit Dice(uint64_t seed) : state_(seed) {}
  uint64_t Below(uint64_t bound) {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return (z ^ (z >> 31)) % bound;
  }
  bool Comes(uint64_t percent) { return Below(100) < percent; }

 private:
  uint64_t state_;
};

class Walk {
 public:
  explicit Walk(uint64_t seed) : dice_(seed), core_(Options()) {
    for (int at = 0; at < 40; ++at) keys_.push_back("key-" + std::to_string(at));
    for (size_t at = 0; at < nodes_.size(); ++at) Register(at);
    for (size_t at = 0; at < sessions_.size(); ++at) SayHello(at);
  }

  void Step() {
    static constexpr void (Walk::* kDeeds[])() = {
        &Walk::Start, &Walk::Start, &Walk::Start,  &Walk::End,   &Walk::End,   &Walk::End,
        &Walk::Abort, &Walk::Look,  &Walk::Look,   &Walk::Drop,  &Walk::Beat,  &Walk::Beat,
        &Walk::Pass,  &Walk::Slice, &Walk::Change, &Walk::Order, &Walk::Leave,
    };
    (this->*kDeeds[dice_.Below(std::size(kDeeds))])();
    core_.Check();
  }
  Counters counters() const { return core_.Report().counters; }

 private:
  struct Put {
    size_t session = 0;
    PutStart::Item item;
    PutOptions options;
    uint64_t generation = 0;
    std::vector<NodeId> nodes{};
  };
  struct Node {
    NodeId id = 0;
    std::vector<uint64_t> fenced{};
    std::vector<CopyResult> finished{};
    double silent_until_s = 0;
  };
  struct Client {
    SessionId id = 0;
    std::vector<uint64_t> leases{};
  };

  static MasterOptions Options() {
    MasterOptions options{kCoreEpoch, 3, 5};
    options.stripe_bytes = 32 << 10;
    options.step_evictions = 5;
    return options;
  }
  std::string_view Key() { return keys_[dice_.Below(keys_.size())]; }

  void Register(size_t at) {
    nodes_[at] = {++last_id_};
    const std::string name = "node-" + std::to_string(at);
    const std::string endpoint = "host:" + std::to_string(at + 1);
    core_.Step(NodeRegister{last_id_, kCoreEpoch, endpoint, "host", name, name, kNodeBytes},
               now_s_);
  }

  void SayHello(size_t at) {
    const Hello hello{++last_id_, sessions_[at].id, last_id_ + 1'000'000, "host"};
    sessions_[at] = {core_.Step(hello, now_s_).value().session};
    std::erase_if(puts_, [at](const auto& put) { return put.second.session == at; });
  }

  void Start() {
    Put put{.session = dice_.Below(sessions_.size()), .item = {}, .options = {}};
    put.item.put_id = ++last_id_;
    put.item.key = Key();
    put.item.size_bytes = kSizes[dice_.Below(kSizes.size())];
    put.item.part_bytes = dice_.Comes(30) ? 7'000 : 0;
    if (dice_.Comes(30)) put.item.parent = Key();
    if (dice_.Comes(20)) put.item.group = dice_.Comes(50) ? "left" : "right";
    put.options.replicas = static_cast<uint32_t>(1 + dice_.Below(3));
    put.options.is_strict = dice_.Comes(20);
    put.options.is_upsert = dice_.Comes(30);
    put.options.has_checksums = dice_.Comes(80);
    put.options.pin = dice_.Comes(10) ? Pin::kSoft : Pin::kNone;
    put.options.soft_pin_s = 2;
    Ask(put);
    if (dice_.Comes(10)) Ask(put);  // its answer was lost
  }

  void Ask(Put& put) {
    const PutStart start{sessions_[put.session].id, {put.options}, {put.item}};
    const PutStartReply reply = core_.Step(start, now_s_);
    if (!reply.is_known) return SayHello(put.session);
    const auto outcome = reply.items[0].outcome;
    if (outcome != PutOutcome::kStarted && outcome != PutOutcome::kMakingRoom) return;
    put.generation = reply.items[0].generation;
    for (const NodeAddress& node : reply.nodes) put.nodes.push_back(node.node);
    puts_[put.item.put_id] = put;
  }

  // One of those that have not ended; and those that wait for room ask again.
  Put* Some() {
    if (puts_.empty()) return nullptr;
    auto at = puts_.begin();
    std::advance(at, static_cast<ptrdiff_t>(dice_.Below(puts_.size())));
    if (at->second.generation == 0) {
      Put again = at->second;
      puts_.erase(at);
      Ask(again);
      return nullptr;
    }
    return &at->second;
  }

  void End() {
    const Put* put = Some();
    if (put == nullptr) return;
    const auto& item = put->item;
    const uint64_t chunks =
        put->options.has_checksums ? ChunkCount(item.size_bytes, item.part_bytes) : 0;
    PutEnd::Item end{item.put_id, item.key, put->generation, {}, {}, {}, chunks};
    if (dice_.Comes(20)) end.lost.push_back(dice_.Below(3));
    if (dice_.Comes(20)) end.dirty = put->nodes;
    if (dice_.Comes(20)) end.failed = put->nodes;
    core_.Step(PutEnd{sessions_[put->session].id, {end}, std::vector<uint32_t>(chunks)}, now_s_);
    if (!dice_.Comes(5)) puts_.erase(item.put_id);
  }

  void Abort() {
    const Put* put = Some();
    if (put == nullptr) return;
    PutAbort::Item abort{put->item.put_id, {}, {}};
    if (dice_.Comes(50)) abort.dirty = put->nodes;
    core_.Step(PutAbort{sessions_[put->session].id, {abort}}, now_s_);
    puts_.erase(abort.put_id);
  }

  void Look() {
    Client& client = sessions_[dice_.Below(sessions_.size())];
    const bool is_pin = dice_.Comes(20);
    const LookupReply reply =
        core_.Step(Lookup{client.id, false, is_pin, {}, {Key(), Key(), Key()}}, now_s_);
    if (reply.lease != 0) client.leases.push_back(reply.lease);
  }

  void Drop() {
    Client& client = sessions_[dice_.Below(sessions_.size())];
    core_.Step(Release{client.id, std::exchange(client.leases, {})}, now_s_);
  }

  void Beat() {
    for (const Client& client : sessions_) core_.Step(Heartbeat{client.id, client.leases}, now_s_);
    for (size_t at = 0; at < nodes_.size(); ++at) {
      Node& node = nodes_[at];
      if (now_s_ < node.silent_until_s) continue;
      const NodeHeartbeat beat{node.id, std::exchange(node.fenced, {}),
                               std::exchange(node.finished, {})};
      const NodeReply reply = core_.Step(beat, now_s_);
      if (!reply.is_known) {
        Register(at);
        continue;
      }
      if (dice_.Comes(70)) node.fenced = reply.fence;
      for (const CopyOrder& order : reply.orders) {
        if (dice_.Comes(30)) continue;  // still under way
        CopyResult result{order.order, dice_.Comes(80), {}};
        const bool is_corrupt = !result.is_done && !order.nodes.empty() && dice_.Comes(50);
        if (is_corrupt) result.corrupt.push_back(order.nodes[0].node);
        node.finished.push_back(result);
      }
    }
  }

  void Pass() {
    now_s_ += dice_.Comes(5) ? 2.5 : 0.1;
    core_.Tick(now_s_);
  }

  void Slice() {
    if (core_.has_background()) core_.RunSlice(now_s_);
  }

  void Change() {
    const std::array<std::string_view, 1> key{Key()};
    const uint64_t deed = dice_.Below(4);
    if (deed == 0) core_.Remove(key);
    if (deed == 1) core_.ReportCorrupt(key[0], last_id_, nodes_[0].id);
    if (deed == 2)
      core_.Step(SetPin{dice_.Comes(70) ? Pin::kNone : Pin::kHard, 0, {key[0]}}, now_s_);
    if (deed == 3) core_.Step(List{0, 10, ""});
  }

  void Order() {
    const std::string name = "node-" + std::to_string(dice_.Below(nodes_.size()));
    const auto kind = static_cast<TaskKind>(dice_.Below(4));
    const bool has_source = kind != TaskKind::kCopy;
    const TaskCreated made =
        core_.Step(TaskCreate{kind, Key(), has_source ? name : "", {}}, now_s_);
    if (made.task != 0 && dice_.Comes(20)) (void)core_.Step(TaskQuery{{made.task}, true}, now_s_);
  }

  void Leave() {
    const size_t at = dice_.Below(nodes_.size());
    if (dice_.Comes(5)) core_.NodeGoodbye(nodes_[at].id);
    if (dice_.Comes(5)) nodes_[at].silent_until_s = now_s_ + 7;  // it is given up
    if (dice_.Comes(5)) core_.NodeDisconnected(nodes_[at].id, now_s_);
    if (dice_.Comes(5)) SayHello(dice_.Below(sessions_.size()));
  }

  Dice dice_;
  MasterCore core_;
  std::vector<std::string> keys_;
  std::array<Node, 4> nodes_;
  std::array<Client, 3> sessions_;
  std::unordered_map<uint64_t, Put> puts_;
  uint64_t last_id_ = 0;
  double now_s_ = 1;
};

TEST(RandomWalksKeepTheInvariantsOfTheMaster) {
  uint64_t lost_nodes = 0;  // a walk loses one or two, or none
  for (uint64_t seed = 1; seed <= 8; ++seed) {
    Walk walk(seed);
    for (int step = 0; step < 12'000; ++step) walk.Step();
    const Counters counters = walk.counters();
    EXPECT(counters.puts > 0);
    EXPECT(counters.evictions > 0);
    EXPECT(counters.fences > 0);
    lost_nodes += counters.lost_nodes;
    EXPECT(counters.moved_copies > 0 && counters.repaired_copies > 0);
  }
  EXPECT(lost_nodes > 4);
}

}  // namespace
}  // namespace mooncake::store

RUN_TESTS()
