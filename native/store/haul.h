// Haul: pieces of many objects on their way to or from many nodes: one batch a node.
//
// Thread safety: one thread.
// Invariants: after Run, no byte of it moves any more unless the status of a node says that it is
// dirty.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "store/context.h"

namespace mooncake::store {

class Haul {
 public:
  // Which piece of which node's batch.
  struct Slot {
    uint32_t node = UINT32_MAX;
    uint32_t piece = 0;
    bool is_used() const { return node != UINT32_MAX; }
  };

  // `peer_id`: the identity that the extents were granted to; reads may use any. About `pieces` of
  // them will be added.
  Haul(Context& context, Op op, uint64_t peer_id, bool has_checksums, size_t pieces)
      : context_(context),
        op_(op),
        peer_id_(peer_id),
        has_checksums_(has_checksums),
        pieces_(pieces),
        arena_(context.scratch) {}

  // Local memory for the time of the haul.
  Arena& arena() { return arena_; }

  // `length` bytes between local memory and byte `offset` of the node's segment.
  Slot Add(const NodeAddress& node, uint64_t address, uint64_t offset, uint64_t length);
  // The header of an extent there. Over shared memory headers are written before everything else of
  // the node's batch, and read after it.
  Slot AddHeader(const NodeAddress& node, uint64_t address, uint64_t offset);

  // Moves everything; nodes are served side by side where that pays.
  void Run();

  // Of the batch that a piece was in.
  const Status& StatusOf(Slot slot) const { return loads_[slot.node].status; }
  NodeId NodeOf(Slot slot) const { return loads_[slot.node].node.node; }
  // Of a piece that has moved, when checksums were asked for. REQUIRES: it is no header.
  uint32_t ChecksumOf(Slot slot) const {
    const Load& load = loads_[slot.node];
    return load.checksums[(op_ == Op::kWrite ? load.headers.size() : 0) + slot.piece];
  }

 private:
  struct Load {
    NodeAddress node;
    std::vector<Piece> headers = {};  // until Run puts them among the pieces
    std::vector<Piece> pieces = {};
    std::vector<uint32_t> checksums = {};
    uint64_t bytes = 0;
    std::shared_ptr<RemoteSegment> segment = {};
    std::shared_ptr<Transfer> transfer = {};  // null: it is carried out here
    Status status = {};
  };

  uint32_t LoadOf(const NodeAddress& node);
  BatchOptions OptionsOf(Load& load) const;
  bool IsWorthAThread(const Load& load) const;
  void Submit(Load& load);
  void Execute(Load& load);
  void Finish(Load& load);
  bool IsQuiet(Load& load) const;

  Context& context_;
  const Op op_;
  const uint64_t peer_id_;
  const bool has_checksums_;
  const size_t pieces_;  // that are expected
  Arena arena_;
  std::vector<Load> loads_;
  uint32_t last_ = 0;  // that a piece was added to
};

}  // namespace mooncake::store
