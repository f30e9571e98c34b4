#include "store/haul.h"

#include <algorithm>

namespace mooncake::store {
namespace {

// Less than this over shared memory is copied sooner than another thread wakes up.
constexpr uint64_t kWorthAThread = 256 << 10;
constexpr double kQuiet_s = 1;

}  // namespace

uint32_t Haul::LoadOf(const NodeAddress& node) {
  if (last_ >= loads_.size() || loads_[last_].node.node != node.node) {
    const auto is_same = [&](const Load& load) { return load.node.node == node.node; };
    last_ = std::ranges::find_if(loads_, is_same) - loads_.begin();
    if (last_ == loads_.size()) {
      loads_.push_back({.node = node});
      loads_.back().pieces.reserve(pieces_);
    }
  }
  return last_;
}

Haul::Slot Haul::Add(const NodeAddress& node, uint64_t address, uint64_t offset, uint64_t length) {
  Load& load = loads_[LoadOf(node)];
  load.pieces.push_back({address, offset, length});
  load.bytes += length;
  return {last_, static_cast<uint32_t>(load.pieces.size() - 1)};
}

Haul::Slot Haul::AddHeader(const NodeAddress& node, uint64_t address, uint64_t offset) {
  Load& load = loads_[LoadOf(node)];
  load.headers.push_back({address, offset, kHeaderBytes});
  load.bytes += kHeaderBytes;
  return {last_, static_cast<uint32_t>(load.headers.size() - 1)};
}

void Haul::Run() {
  const Status scratch = arena_.status();
  for (Load& load : loads_) {
    const auto at = op_ == Op::kWrite ? load.pieces.begin() : load.pieces.end();
    load.pieces.insert(at, load.headers.begin(), load.headers.end());
    if (has_checksums_) load.checksums.resize(load.pieces.size());
    auto segment = context_.segments.Open(load.node, peer_id_, context_.DataDeadline(load.bytes));
    load.status = scratch.ok() ? segment.status() : scratch;
    if (load.status.ok()) load.segment = std::move(segment).value();
    if (load.status.ok() && &load != &loads_.back() && IsWorthAThread(load)) Submit(load);
  }
  for (Load& load : loads_) {
    if (load.status.ok() && load.transfer == nullptr) Execute(load);
  }
  for (Load& load : loads_) Finish(load);
}

BatchOptions Haul::OptionsOf(Load& load) const {
  BatchOptions options{context_.DataDeadline(load.bytes)};
  options.checksums = load.checksums;
  const size_t headers = load.headers.size();
  options.barrier = op_ == Op::kWrite ? headers : load.pieces.size() - headers;
  options.is_cold = true;  // a pool is much larger than a cache
  return options;
}

bool Haul::IsWorthAThread(const Load& load) const {
  return load.bytes >= kWorthAThread || load.segment->transport() != "shm";
}

void Haul::Submit(Load& load) {
  auto transfer = context_.session.engine().Submit(op_, load.segment, load.pieces, OptionsOf(load));
  load.status = transfer.status();
  if (transfer.ok()) load.transfer = std::move(transfer).value();
}

void Haul::Execute(Load& load) {
  load.status = context_.session.engine().Execute(op_, load.segment, load.pieces, OptionsOf(load));
}

void Haul::Finish(Load& load) {
  if (load.transfer != nullptr) {
    while (!load.transfer->done()) (void)load.transfer->Wait(Deadline::After(60));
    load.status = *load.transfer->Wait(Deadline::After(0));
  }
  if (load.status.ok()) return context_.segments.Praise(load.node.node);
  if (load.segment == nullptr || IsCallersFault(load.status)) return;
  if (load.status.is_dirty() && IsQuiet(load)) {
    load.status = Status(load.status.code(), load.status.message());
  }
  context_.segments.Drop(load.node.node, load.status);
}

// After a write that failed: whether nothing of it is under way any more. Over shared memory the
// copy has ended with the call. Over a network the next write to the node begins by ending what the
// last one left, so that one that succeeds says so; it repeats some bytes of the first piece.
bool Haul::IsQuiet(Load& load) const {
  if (load.segment->transport() == "shm") return true;
  Piece first = load.pieces.front();
  first.length = std::min(first.length, kHeaderBytes);
  const Deadline deadline = Deadline::After(std::min(context_.session.timeout_s() / 4, kQuiet_s));
  return context_.session.engine().Execute(op_, load.segment, {&first, 1}, {deadline}).ok();
}

}  // namespace mooncake::store
