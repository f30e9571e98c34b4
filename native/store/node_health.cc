#include "store/node_health.h"

#include <algorithm>

namespace mooncake::store {
namespace {

constexpr size_t kFailedNodes = 4096;  // nodes come and go, and have new ids each time

}  // namespace

double NodeHealth::PatienceFor(NodeId node, double now_s) {
  const auto found = failed_.find(node);
  if (found == failed_.end()) return kOpen_s;
  Failure& failure = found->second;
  if (now_s < failure.until_s) return 0;
  failure.is_tried = true;
  failure.until_s = now_s + kTrial_s;
  return kTrial_s;
}

// Those that were already waiting when the first of them failed do not count again.
void NodeHealth::Fail(NodeId node, double now_s) {
  if (failed_.size() >= kFailedNodes) failed_.clear();
  Failure& failure = failed_[node];
  if (now_s < failure.until_s && !failure.is_tried) return;
  failure.pause_s = std::clamp(2 * failure.pause_s, kFirstPause_s, kLongestPause_s);
  failure.until_s = now_s + failure.pause_s;
  failure.is_tried = false;
}

}  // namespace mooncake::store
