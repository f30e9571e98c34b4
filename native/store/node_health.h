// NodeHealth: which nodes failed lately, and when they are tried again: a node that accepts and
// never answers must not slow every call. Pure: the time is an argument.
//
// Thread safety: none; its owner locks.
// Invariants: one call at a time tries a node that has failed, and waits shortly for it; after each
// failure in a row the node is left alone for twice as long, until bytes move again.
#pragma once

#include <unordered_map>

#include "store/messages.h"

namespace mooncake::store {

class NodeHealth {
 public:
  static constexpr double kOpen_s = 2;  // how long a node is waited for that did not fail lately
  static constexpr double kTrial_s = 0.25;  // and one that did
  static constexpr double kFirstPause_s = 1;
  static constexpr double kLongestPause_s = 8;

  // For how long to wait for the node now; 0: it is to be left alone.
  double PatienceFor(NodeId node, double now_s);
  void Fail(NodeId node, double now_s);
  // It has moved bytes.
  void Work(NodeId node) { failed_.erase(node); }
  void Clear() { failed_.clear(); }
  bool is_empty() const { return failed_.empty(); }

 private:
  struct Failure {
    double pause_s = 0;
    double until_s = 0;
    bool is_tried = false;  // until_s is the end of a trial, not of a pause
  };

  std::unordered_map<NodeId, Failure> failed_;
};

}  // namespace mooncake::store
