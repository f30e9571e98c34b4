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
    question.items.push_back(
        {context_->session.NextPutId(), item.key, item.size_bytes, item.part_bytes, replicas});
  }
  Session::Identity identity;
  auto reply = AskToPut(question, identity);
  if (!reply.ok()) return reply.status();
  std::vector<Started> started;
  for (size_t at = 0; at < items.size(); ++at) {
    started.push_back(
        Interpret(reply.value(), reply.value().items[at], question.items[at], identity));
  }
  for (Started& put : started) {
    if (put.writer == nullptr) continue;
    put.status = put.writer->WriteHeaders();
    if (!put.status.ok()) put.writer = nullptr;
  }
  return started;
}

Client::Started Client::Interpret(const PutStartReply& reply, const PutStartReply::Item& grant,
                                  const PutStart::Item& item,
                                  const Session::Identity& identity) const {
  switch (grant.outcome) {
    case PutOutcome::kStarted:
      return {std::make_unique<Writer>(context_, identity, item, grant), Status::Ok()};
    case PutOutcome::kExists:
    case PutOutcome::kBusy:
      return {nullptr, Status::Ok()};
    case PutOutcome::kOutOfSpace:
      return {nullptr, NoSpace(reply.space, item)};
    case PutOutcome::kAborted:
    case PutOutcome::kInvalid:
      break;
  }
  return {nullptr,
          {Code::kInvalidArgument,
           "the master refuses a key of " + std::to_string(item.key.size()) +
               " bytes (at most 65536) with " + std::to_string(item.size_bytes) + " bytes and " +
               std::to_string(item.replicas) + " copies (1 to 16) in " +
               std::to_string(ChunkCount(item.size_bytes, item.part_bytes)) +
               " chunks (at most 1048576)"}};
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
    PutEnd::Item item;
    put.status = put.writer->PrepareEnd(item);
    if (!put.status.ok()) continue;
    question.items.push_back(std::move(item));
    ending.push_back(&put);
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
    const Lookup question{identity.value().id, stop_at_miss, keys};
    const double asked_s = MonotonicSeconds();
    auto reply =
        session.master().Call<LookupReply>(MessageType::kLookup, question, session.CallDeadline());
    if (!reply.ok()) return reply.status();
    if (!reply.value().is_known) {
      session.Forget(identity.value().id);
      continue;
    }
    auto& items = reply.value().items;
    for (const auto& item : items) {
      const bool fits =
          !item.found || item.checksums.size() == ChunkCount(item.size_bytes, item.part_bytes);
      if (!fits || items.size() != keys.size()) {
        return Status(Code::kWire, "the master described an object that cannot be");
      }
    }
    if (stop_at_miss) {
      const auto end = std::find_if(items.begin(), items.end(),
                                    [](const LookupReply::Item& item) { return !item.found; });
      items.erase(end, items.end());
    }
    return std::make_shared<Reader>(context_, identity.value(), reply.value().lease, asked_s,
                                    std::move(keys), std::move(items));
  }
  return Status(Code::kUnavailable, "the master does not keep this process's session");
}

Result<std::vector<bool>> Client::Exists(std::vector<std::string> keys) {
  MC_RETURN_IF_ERROR(CheckBatch(keys.size()));
  Session& session = context_->session;
  auto reply = session.master().Call<Flags>(MessageType::kExists, Keys{std::move(keys)},
                                            session.CallDeadline());
  if (!reply.ok()) return reply.status();
  return std::move(reply.value().flags);
}

Result<uint64_t> Client::MatchPrefix(std::vector<std::string> keys) {
  MC_RETURN_IF_ERROR(CheckBatch(keys.size()));
  Session& session = context_->session;
  auto reply = session.master().Call<One>(MessageType::kMatchPrefix, Keys{std::move(keys)},
                                          session.CallDeadline());
  if (!reply.ok()) return reply.status();
  return reply.value().value;
}

Result<std::vector<bool>> Client::Remove(std::vector<std::string> keys) {
  MC_RETURN_IF_ERROR(CheckBatch(keys.size()));
  Session& session = context_->session;
  auto reply = session.master().Call<Flags>(MessageType::kRemove, Keys{std::move(keys)},
                                            session.CallDeadline());
  if (!reply.ok()) return reply.status();
  return std::move(reply.value().flags);
}

Result<Stats> Client::Report() {
  Session& session = context_->session;
  return session.master().Call<Stats>(MessageType::kStats, One{}, session.CallDeadline());
}

}  // namespace mooncake::store
