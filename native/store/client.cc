#include "store/client.h"

namespace mooncake::store {
namespace {

constexpr int kHellos = 2;  // an expired session says hello once more, then gives up

Status CheckBatch(size_t count) {
  if (count <= kMaxBatch) return Status::Ok();
  return {Code::kInvalidArgument, std::to_string(count) + " keys in one batch; at most " +
                                      std::to_string(kMaxBatch) + " are taken"};
}

Status NoSpace(const Space& space, const PutStart::Item& item) {
  if (space.capacity == 0) return {Code::kUnavailable, "no store node takes objects now"};
  return {Code::kOutOfSpace,
          "no room for " + std::to_string(item.size_bytes) + " bytes: of " +
              std::to_string(space.capacity) + " bytes " + std::to_string(space.pinned) +
              " are pinned by reads and writes, " + std::to_string(space.quarantined) +
              " quarantined, " + std::to_string(space.evictable) +
              " evictable; the largest free extent is " +
              std::to_string(space.largest_free_extent)};
}

Status WhyNot(PutOutcome outcome, const Space& space, const PutStart::Item& item,
              const PutOptions& options) {
  if (outcome == PutOutcome::kExists || outcome == PutOutcome::kBusy) return Status::Ok();
  if (outcome == PutOutcome::kOutOfSpace) return NoSpace(space, item);
  return {Code::kInvalidArgument, "the master refuses a key of " + std::to_string(item.key.size()) +
                                      " bytes (at most 65536) with " +
                                      std::to_string(item.size_bytes) + " bytes and " +
                                      std::to_string(options.replicas) + " copies (1 to 16) in " +
                                      std::to_string(ChunkCount(item.size_bytes, item.part_bytes)) +
                                      " chunks (at most 1048576)"};
}

// `count` extents from placement number `first` on.
Result<std::vector<ExtentAddress>> ExtentsOf(std::span<const NodeAddress> nodes,
                                             std::span<const Placement> placements, size_t first,
                                             size_t count) {
  std::vector<ExtentAddress> extents;
  for (size_t at = first; at < first + count; ++at) {
    if (at >= placements.size() || placements[at].node >= nodes.size()) {
      return Status(Code::kWire, "the master placed an object nowhere");
    }
    const NodeAddress& node = nodes[placements[at].node];
    extents.push_back({node.node, node.endpoint, placements[at].offset});
  }
  return extents;
}

std::vector<std::string_view> Views(std::span<const std::string> keys) {
  return {keys.begin(), keys.end()};
}

}  // namespace

Client::Client(std::shared_ptr<Engine> engine, const Options& options)
    : context_(std::make_shared<Context>(engine, options.master, options.timeout_s)),
      options_(options) {}

// Segments of an earlier epoch are of no use; keeping them mapped would keep their memory.
void Client::DropStaleSegments() {
  const uint64_t epoch = context_->session.epoch();
  if (segments_epoch_.exchange(epoch) != epoch) context_->segments.Clear();
}

Result<PutStartReply> Client::AskToPut(PutStart& question, Session::Identity& identity) {
  Session& session = context_->session;
  for (int tries = 0; tries < kHellos; ++tries) {
    auto current = session.Current();
    if (!current.ok()) return current.status();
    identity = current.value();
    question.session = identity.id;
    auto reply = session.master().Call<PutStartReply>(MessageType::kPutStart, question,
                                                      session.CallDeadline());
    if (!reply.ok()) {
      // It may have been granted: nobody writes there, so its abort is clean.
      for (const auto& item : question.items) session.AbortLater(identity.id, {item.put_id, {}});
      return reply.status();
    }
    if (reply.value().is_known) {
      if (reply.value().items.size() == question.items.size()) return reply;
      return Status(Code::kWire, "the master answered another number of puts");
    }
    session.Forget(identity.id);
  }
  return Status(Code::kUnavailable, "the master does not keep this process's session");
}

Result<std::vector<Client::Started>> Client::StartPuts(std::span<const PutItem> items) {
  MC_RETURN_IF_ERROR(CheckBatch(items.size()));
  DropStaleSegments();
  PutStart question;
  for (const PutItem& item : items) {
    const uint32_t replicas = item.replicas != 0 ? item.replicas : options_.replicas;
    if (question.options.empty() || question.options.back().replicas != replicas) {
      question.options.push_back({.replicas = replicas});
    }
    question.items.push_back({.put_id = context_->session.NextPutId(),
                              .key = item.key,
                              .size_bytes = item.size_bytes,
                              .part_bytes = item.part_bytes,
                              .options = static_cast<uint32_t>(question.options.size() - 1)});
  }
  Session::Identity identity;
  auto reply = AskToPut(question, identity);
  if (!reply.ok()) return reply.status();
  auto granted = Interpret(question, reply.value(), identity);
  if (!granted.ok()) return granted.status();
  std::vector<Started> started = std::move(granted).value();
  for (Started& put : started) {
    if (put.writer == nullptr) continue;
    put.status = put.writer->WriteHeaders();
    if (!put.status.ok()) put.writer = nullptr;
  }
  return started;
}

Result<std::vector<Client::Started>> Client::Interpret(const PutStart& question,
                                                       const PutStartReply& reply,
                                                       const Session::Identity& identity) const {
  std::vector<Started> started;
  size_t placement = 0;
  for (size_t at = 0; at < question.items.size(); ++at) {
    const PutStart::Item& item = question.items[at];
    const PutStartReply::Item& grant = reply.items[at];
    if (grant.outcome == PutOutcome::kStarted) {
      auto copies = ExtentsOf(reply.nodes, reply.placements, placement, grant.copies);
      if (!copies.ok()) return copies.status();
      placement += grant.copies;
      started.push_back({std::make_unique<Writer>(context_, identity, item, grant.generation,
                                                  std::move(copies).value()),
                         Status::Ok()});
    } else {
      started.push_back(
          {nullptr, WhyNot(grant.outcome, reply.space, item, question.options[item.options])});
    }
  }
  return started;
}

Result<std::vector<bool>> Client::Put(std::span<const PutItem> items,
                                      std::span<const Range> values) {
  auto started = StartPuts(items);
  if (!started.ok()) return started.status();
  std::vector<Started>& puts = started.value();
  std::vector<bool> stored;
  for (size_t at = 0; at < puts.size(); ++at) {
    stored.push_back(puts[at].writer != nullptr);
    if (puts[at].writer != nullptr)
      puts[at].status = puts[at].writer->WriteAll(values.subspan(at, 1));
  }
  MC_RETURN_IF_ERROR(EndPuts(puts));
  // What this very batch was holding may have been the room that was missing.
  for (size_t at = 0; at < puts.size(); ++at) {
    if (puts[at].status.code() == Code::kOutOfSpace && puts.size() > 1) {
      auto again = Put(items.subspan(at, 1), values.subspan(at, 1));
      if (!again.ok()) return again.status();
      stored[at] = again.value()[0];
      puts[at].status = Status::Ok();
    }
  }
  for (const Started& put : puts) MC_RETURN_IF_ERROR(put.status);
  return stored;
}

// One question for all that were written; each put's status says how it ended.
Status Client::EndPuts(std::vector<Started>& puts) {
  PutEnd question;
  std::vector<Started*> ending;
  for (Started& put : puts) {
    if (put.writer == nullptr || !put.status.ok()) continue;
    put.status = put.writer->PrepareEnd(question);
    if (put.status.ok()) ending.push_back(&put);
  }
  if (ending.empty()) return Status::Ok();
  Session& session = context_->session;
  question.session = ending[0]->writer->session_id();
  auto reply =
      session.master().Call<PutEndReply>(MessageType::kPutEnd, question, session.CallDeadline());
  if (!reply.ok()) {
    for (Started* put : ending) put->writer->FailEnd();
    return reply.status();
  }
  if (!reply.value().is_known) session.Forget(question.session);
  reply.value().outcomes.resize(ending.size(), EndOutcome::kUnknown);
  for (size_t at = 0; at < ending.size(); ++at) {
    ending[at]->status = ending[at]->writer->FinishEnd(reply.value().outcomes[at]);
  }
  return Status::Ok();
}

Result<std::shared_ptr<Reader>> Client::Open(std::vector<std::string> keys, bool stop_at_miss) {
  MC_RETURN_IF_ERROR(CheckBatch(keys.size()));
  DropStaleSegments();
  Session& session = context_->session;
  for (int tries = 0; tries < kHellos; ++tries) {
    auto identity = session.Current();
    if (!identity.ok()) return identity.status();
    const Lookup question{identity.value().id, stop_at_miss, false, {}, Views(keys)};
    const double asked_s = MonotonicSeconds();
    auto reply =
        session.master().Call<LookupReply>(MessageType::kLookup, question, session.CallDeadline());
    if (!reply.ok()) return reply.status();
    if (!reply.value().is_known) {
      session.Forget(identity.value().id);
      continue;
    }
    auto items = ItemsOf(reply.value(), keys.size());
    if (!items.ok()) return items.status();
    if (stop_at_miss) {
      const auto end = std::ranges::find(items.value(), false, &Reader::Item::found);
      items.value().erase(end, items.value().end());
    }
    return std::make_shared<Reader>(context_, identity.value(), reply.value().lease, asked_s,
                                    std::move(keys), std::move(items).value());
  }
  return Status(Code::kUnavailable, "the master does not keep this process's session");
}

Result<std::vector<Reader::Item>> Client::ItemsOf(LookupReply& reply, size_t count) const {
  const Status impossible(Code::kWire, "the master described an object that cannot be");
  if (reply.items.size() != count) return impossible;
  std::vector<Reader::Item> items;
  size_t placement = 0, checksum = 0;
  for (const LookupReply::Item& item : reply.items) {
    Reader::Item& known = items.emplace_back();
    if (!item.found) continue;
    auto copies = ExtentsOf(reply.nodes, reply.placements, placement, item.copies);
    if (!copies.ok()) return copies.status();
    const uint64_t chunks = ChunkCount(item.size_bytes, item.part_bytes);
    if (reply.checksums.size() - checksum < chunks) return impossible;
    const auto first = reply.checksums.begin() + checksum;
    known = {true,
             item.size_bytes,
             item.part_bytes,
             item.generation,
             std::move(copies).value(),
             {first, first + chunks}};
    placement += item.copies;
    checksum += chunks;
  }
  return items;
}

Result<std::vector<bool>> Client::Exists(std::vector<std::string> keys) {
  MC_RETURN_IF_ERROR(CheckBatch(keys.size()));
  Session& session = context_->session;
  auto reply =
      session.master().Call<Flags>(MessageType::kExists, Keys{Views(keys)}, session.CallDeadline());
  if (!reply.ok()) return reply.status();
  return std::move(reply.value().flags);
}

Result<uint64_t> Client::MatchPrefix(std::vector<std::string> keys) {
  MC_RETURN_IF_ERROR(CheckBatch(keys.size()));
  Session& session = context_->session;
  auto reply = session.master().Call<One>(MessageType::kMatchPrefix, Keys{Views(keys)},
                                          session.CallDeadline());
  if (!reply.ok()) return reply.status();
  return reply.value().value;
}

Result<std::vector<bool>> Client::Remove(std::vector<std::string> keys) {
  MC_RETURN_IF_ERROR(CheckBatch(keys.size()));
  Session& session = context_->session;
  auto reply =
      session.master().Call<Flags>(MessageType::kRemove, Keys{Views(keys)}, session.CallDeadline());
  if (!reply.ok()) return reply.status();
  return std::move(reply.value().flags);
}

Result<Stats> Client::Report() {
  Session& session = context_->session;
  return session.master().Call<Stats>(MessageType::kStats, One{}, session.CallDeadline());
}

}  // namespace mooncake::store
