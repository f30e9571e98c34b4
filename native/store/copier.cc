#include "store/copier.h"

#include <algorithm>
#include <cstring>
#include <set>

#include "store/layout.h"

namespace mooncake::store {
namespace {

constexpr double kPatience_s = 5;  // of one source, beside the time that its bytes may take
constexpr double kSlow_bytes_per_s = 10e6;  // a slow network still makes this many

bool HasGeneration(const Segment& segment, const CopyOrder& order) {
  HeaderBytes bytes;
  std::memcpy(bytes.data(), segment.data() + order.offset, bytes.size());
  const auto header = DecodeHeader(bytes);
  return header && header->generation == order.generation;
}

// The header, then the payload, cut where its checksums are.
std::vector<Piece> PiecesOf(const CopyOrder& order, uint64_t address, uint64_t offset) {
  std::vector<Piece> pieces{{address, offset, kHeaderBytes}};
  const Range payload{address + kHeaderBytes, order.bytes};
  ForEachCut({order.bytes, order.part_bytes, 0}, {&payload, 1}, 0,
             [&](const Chunk& chunk, uint64_t local, uint64_t, uint64_t length) {
               pieces.push_back({local, offset + kHeaderBytes + chunk.begin, length});
             });
  return pieces;
}

}  // namespace

Copier::Copier(std::shared_ptr<Engine> engine, std::function<void()> on_news)
    : engine_(std::move(engine)),
      on_news_(std::move(on_news)),
      segments_(engine_),
      thread_([this] { Run(); }) {}

Copier::~Copier() {
  Forget();
  {
    std::lock_guard lock(mutex_);
    is_closed_ = true;
  }
  changed_.notify_all();
  thread_.join();
}

void Copier::Obey(const std::shared_ptr<Segment>& segment, std::vector<CopyOrder> orders) {
  std::lock_guard lock(mutex_);
  std::set<uint64_t> asked;
  for (CopyOrder& order : orders) {
    const uint64_t id = order.order;
    asked.insert(id);
    const bool is_known = finished_.contains(id) || waiting_.contains(id) ||
                          (running_ != nullptr && running_->order.order == id);
    if (is_known) continue;
    auto task = std::make_shared<Task>();
    task->order = std::move(order);
    task->segment = segment;
    waiting_.emplace(id, std::move(task));
  }
  const auto is_void = [&asked](const auto& entry) { return !asked.contains(entry.first); };
  std::erase_if(finished_, is_void);
  std::erase_if(waiting_, is_void);
  if (!waiting_.empty()) changed_.notify_all();
}

std::vector<CopyResult> Copier::Finished() const {
  std::lock_guard lock(mutex_);
  std::vector<CopyResult> results;
  for (const auto& [order, result] : finished_) results.push_back(result);
  return results;
}

void Copier::Forget() {
  std::lock_guard lock(mutex_);
  waiting_.clear();
  finished_.clear();
  if (running_ != nullptr) running_->cancel.Set();
}

void Copier::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    changed_.wait(lock, [this] { return is_closed_ || !waiting_.empty(); });
    if (is_closed_) return;
    const auto task = running_ = waiting_.extract(waiting_.begin()).mapped();
    lock.unlock();
    CopyResult result = Fetch(*task);
    lock.lock();
    running_ = nullptr;
    if (task->cancel.is_set()) continue;
    finished_[task->order.order] = std::move(result);
    lock.unlock();
    on_news_();
    lock.lock();
  }
}

CopyResult Copier::Fetch(const Task& task) {
  const CopyOrder& order = task.order;
  CopyResult result{order.order, false, {}};
  const uint64_t chunks = ChunkCount(order.bytes, order.part_bytes);
  const bool is_sound = task.segment->Contains(order.offset, kHeaderBytes) &&
                        task.segment->Contains(order.offset + kHeaderBytes, order.bytes) &&
                        (order.checksums.empty() || order.checksums.size() == chunks);
  if (!is_sound) return result;
  for (const Placement& source : order.sources) {
    Status status = FetchFrom(task, source);
    // The bytes may have changed on their way.
    if (status.code() == Code::kChecksumMismatch) status = FetchFrom(task, source);
    result.is_done = status.ok();
    if (status.ok() || task.cancel.is_set()) break;
    if (status.code() == Code::kChecksumMismatch) {
      result.corrupt.push_back(order.nodes[source.node].node);
    }
  }
  return result;
}

// kChecksumMismatch when the bytes have arrived and are not the stripe's.
Status Copier::FetchFrom(const Task& task, const Placement& source) {
  const CopyOrder& order = task.order;
  if (source.node >= order.nodes.size()) return {Code::kWire, "a source has no address"};
  const NodeAddress& node = order.nodes[source.node];
  const auto deadline =
      Deadline::After(kPatience_s + static_cast<double>(order.bytes) / kSlow_bytes_per_s);
  auto remote = segments_.Open(node, engine_->peer_id(), deadline);
  if (!remote.ok()) return remote.status();
  const auto pieces = PiecesOf(order, task.segment->address() + order.offset, source.offset);
  std::vector<uint32_t> checksums(order.checksums.empty() ? 0 : pieces.size());
  Status status = engine_->Execute(Op::kRead, remote.value(), pieces,
                                   {.deadline = deadline,
                                    .priority = Priority::kBackground,
                                    .cancel = &task.cancel,
                                    .checksums = checksums});
  if (!status.ok()) {
    if (!task.cancel.is_set()) segments_.Drop(node.node, status);
    return status;
  }
  const bool is_right = HasGeneration(*task.segment, order) &&
                        std::equal(checksums.begin() + !checksums.empty(), checksums.end(),
                                   order.checksums.begin(), order.checksums.end());
  return is_right ? Status::Ok()
                  : Status(Code::kChecksumMismatch, "the bytes are not the stripe's");
}

}  // namespace mooncake::store
