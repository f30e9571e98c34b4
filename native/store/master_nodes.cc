// The nodes' coming and going.
#include <algorithm>

#include "base/check.h"
#include "base/socket.h"
#include "store/master_core.h"

namespace mooncake::store {
namespace {

// ESC and newlines, say, would reach terminals.
bool IsControl(char character) {
  const auto code = static_cast<unsigned char>(character);
  return code < 0x20 || code == 0x7f;
}

// What cannot be in what a node says of itself; empty: it is fine.
std::string ProblemWith(const NodeRegister& event) {
  for (const std::string* text : {&event.endpoint, &event.host_id, &event.name, &event.domain}) {
    if (text->size() <= kMaxNameBytes) continue;
    return "an endpoint, a host id, a name or a domain of " + std::to_string(text->size()) +
           " bytes; at most " + std::to_string(kMaxNameBytes) + " will do";
  }
  for (const std::string* text : {&event.host_id, &event.name, &event.domain}) {
    if (std::ranges::none_of(*text, IsControl)) continue;
    return "a host id, a name or a domain with a control character; text without any will do";
  }
  if (const auto address = ParseAddress(event.endpoint); !address.ok()) {
    return "its endpoint " + address.status().message();
  }
  if (event.node == 0) return "node 0 names nobody; choose another number";
  if (event.capacity_bytes >= Allocator::kGranularity && event.capacity_bytes <= kMaxNodeBytes) {
    return "";
  }
  return "it lends " + std::to_string(event.capacity_bytes) + " bytes; from " +
         std::to_string(Allocator::kGranularity) + " to " + std::to_string(kMaxNodeBytes) +
         " will do";
}

}  // namespace

NodeReply MasterCore::Answer(const NodeRecord& node) {
  NodeReply reply = Refuse(NodeRefusal::kNone, "");
  reply.is_known = true;
  for (const auto& [peer_id, quarantine] : node.quarantine) {
    if (reply.fence.size() == kMaxBatch) break;  // more are asked for once these are fenced
    reply.fence.push_back(peer_id);
  }
  jobs_.AppendOrders(node.id, reply.orders);
  return reply;
}

NodeReply MasterCore::Refuse(NodeRefusal refusal, std::string problem) const {
  return {false, options_.epoch, options_.client_ttl_s, {}, {}, refusal, std::move(problem)};
}

NodeReply MasterCore::Step(const NodeRegister& event, double now_s) {
  now_s = Advance(now_s);
  if (std::string problem = ProblemWith(event); !problem.empty()) {
    return Refuse(NodeRefusal::kInvalid, std::move(problem));
  }
  if (event.epoch != options_.epoch || lost_nodes_.Contains(event.node)) {
    return Refuse(NodeRefusal::kNone, "");
  }
  NodeTable& nodes = inventory_.nodes();
  if (nodes.Find(event.node) != kNoIndex) return Step(NodeHeartbeat{event.node, {}, {}}, now_s);
  // One engine lends one segment: whoever had this address has taken new memory, or died.
  for (uint32_t slot = 0; slot < nodes.size(); ++slot) {
    if (nodes[slot].is_there() && nodes[slot].endpoint == event.endpoint) LoseNode(slot);
  }
  Work(settle_steps());
  const std::string& name = event.name.empty() ? event.endpoint : event.name;
  if (const uint32_t slot = nodes.FindNamed(name); slot != kNoIndex) {
    return Refuse(NodeRefusal::kNameTaken, "the name '" + name + "' is taken by the node at " +
                                               nodes[slot].endpoint +
                                               "; stop that one, or give this one another name");
  }
  NodeRecord& node = nodes[nodes.Add(event, now_s)];
  node.lost_s = now_s + kNodeLostAfter * options_.client_ttl_s;
  return Answer(node);
}

NodeReply MasterCore::Step(const NodeHeartbeat& event, double now_s) {
  now_s = Advance(now_s);
  NodeTable& nodes = inventory_.nodes();
  const uint32_t slot = nodes.Find(event.node);
  if (slot == kNoIndex) return Refuse(NodeRefusal::kNone, "");
  NodeRecord& node = nodes[slot];
  if (node.state == NodeState::kSuspected) {
    nodes.SetState(slot, tasks_.IsDraining(node.id) ? NodeState::kDraining : NodeState::kOnline);
  }
  node.seen_s = now_s;
  node.lost_s = now_s + kNodeLostAfter * options_.client_ttl_s;
  for (const uint64_t peer_id : event.fenced) {
    const auto found = node.quarantine.find(peer_id);
    if (found == node.quarantine.end()) continue;
    EndPins(found->second);
    inventory_.FreeFenced(slot, peer_id);
  }
  for (const CopyResult& result : event.finished) jobs_.Heard(node.id, result);
  Work(settle_steps());
  return Answer(node);
}

// A node has fenced who held them, or is lost.
void MasterCore::EndPins(NodeRecord::Quarantine& quarantine) {
  for (const uint64_t lease : quarantine.pins) {
    if (--leases_.at(lease).fences == 0) ended_leases_.push_back(lease);
  }
  quarantine.pins.clear();
}

void MasterCore::NodeGoodbye(NodeId node) {
  const uint32_t slot = inventory_.nodes().Find(node);
  if (slot != kNoIndex) LoseNode(slot);
  Work(settle_steps());
}

void MasterCore::NodeDisconnected(NodeId id, double now_s) {
  now_s = Advance(now_s);
  NodeTable& nodes = inventory_.nodes();
  const uint32_t slot = nodes.Find(id);
  if (slot == kNoIndex) return;
  nodes.SetState(slot, NodeState::kSuspected);
  nodes[slot].lost_s = std::min(nodes[slot].lost_s, now_s + options_.client_ttl_s);
}

void MasterCore::TickNodes(double now_s) {
  NodeTable& nodes = inventory_.nodes();
  for (uint32_t slot = 0; slot < nodes.size(); ++slot) {
    NodeRecord& node = nodes[slot];
    if (!node.is_there()) continue;
    if (now_s - node.seen_s > options_.client_ttl_s) nodes.SetState(slot, NodeState::kSuspected);
    if (now_s <= node.lost_s) continue;
    ++inventory_.counters().lost_nodes;
    LoseNode(slot);
  }
}

// Its copies and its quarantine go with its memory. Its id is never taken again.
void MasterCore::LoseNode(uint32_t slot) {
  NodeRecord& node = inventory_.nodes()[slot];
  lost_nodes_.Add(node.id);
  for (auto& [peer_id, quarantine] : node.quarantine) EndPins(quarantine);
  node.quarantine.clear();
  const NodeId id = node.id;
  inventory_.LoseNode(slot);
  jobs_.Lost(id, "node '" + node.name + "'");
  tasks_.Lost(id);
}

}  // namespace mooncake::store
