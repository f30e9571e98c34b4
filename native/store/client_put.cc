// Client: puts.
#include <algorithm>
#include <iterator>

#include "store/batches.h"
#include "store/client.h"

namespace mooncake::store {
namespace {

constexpr int kPutHellos = 2;  // an expired session says hello once more, then gives up
// A node that fails is found by the first try and avoided by the next; as many may fail at once.
constexpr int kPutTries = 4;
// Begun, written and ended together; more would keep more of the store unusable meanwhile.
constexpr uint64_t kPutBytes = 64 << 20;

uint64_t KeyBytesOf(const Client::PutItem& item) {
  return item.key.size() + item.parent.size() + item.group.size();
}

Status NoSpace(const Space& space, const PutStart::Item& item, uint64_t stripe_bytes) {
  if (space.capacity == 0) return {Code::kUnavailable, "no store node takes objects now"};
  const std::string stripes = stripe_bytes == 0
                                  ? ""
                                  : " in stripes of " + std::to_string(stripe_bytes) +
                                        " (the master's --stripe; a node has to be larger)";
  return {Code::kOutOfSpace,
          "no room for " + std::to_string(item.size_bytes) + " bytes" + stripes +
              ", each extent with a header of " + std::to_string(kHeaderBytes) + ": of " +
              std::to_string(space.capacity) + " bytes " + std::to_string(space.pinned) +
              " are pinned, being read or being written, " + std::to_string(space.quarantined) +
              " quarantined, " + std::to_string(space.evictable) + " evictable, " +
              std::to_string(space.capacity - space.used) + " free; the largest free extent is " +
              std::to_string(space.largest_free_extent)};
}

// What is beyond its bounds, as far as it can be seen here: how large stripes are the master knows.
Status Invalid(const PutStart::Item& item, const PutOptions& options) {
  std::string causes;
  const auto check = [&](const char* what, uint64_t number, uint64_t most) {
    if (number <= most) return;
    causes += (causes.empty() ? "" : ", ") + std::to_string(number) + " " + what + " (at most " +
              std::to_string(most) + ")";
  };
  check("bytes of key", item.key.size(), kMaxKeyBytes);
  check("bytes of group name", item.group.size(), kMaxKeyBytes);
  check("bytes", item.size_bytes, kMaxObjectBytes);
  if (item.size_bytes <= kMaxObjectBytes) {
    check("chunks", ChunkCount(item.size_bytes, item.part_bytes), MostChunks(item.size_bytes));
  }
  check("copies", options.replicas, kMaxReplicas);
  check("preferred nodes", options.preferred.size(), kMaxPreferred);
  if (causes.empty()) {
    causes = "its " + std::to_string(options.replicas) + " copies of " +
             std::to_string(item.size_bytes) + " bytes are cut into more than " +
             std::to_string(kMaxExtents) + " stripes, or this client has " +
             std::to_string(kMaxOpenPuts) + " open puts";
  }
  return {Code::kInvalidArgument, "the master refuses the put: " + causes};
}

Client::Started Refused(const PutStartReply::Item& grant, const Space& space,
                        const PutStart::Item& item, const PutOptions& options) {
  using Outcome = Client::Outcome;
  switch (grant.outcome) {
    case PutOutcome::kExists:
      return {Outcome::kExists};
    case PutOutcome::kBusy:
      return {Outcome::kBusy};
    case PutOutcome::kNotAdmitted:
      return {Outcome::kNotAdmitted};
    case PutOutcome::kOutOfSpace:
      return {Outcome::kFailed, NoSpace(space, item, grant.stripe_bytes)};
    case PutOutcome::kMakingRoom:
      return {Outcome::kFailed,
              {Code::kUnavailable, "the master did not make room for " +
                                       std::to_string(item.size_bytes) + " bytes in time"}};
    case PutOutcome::kTooFewNodes:
      return {Outcome::kFailed,
              {Code::kTooFewNodes,
               "strict copies need a failure domain each: " + std::to_string(options.replicas) +
                   " are wanted, and the nodes that take objects are in " +
                   std::to_string(grant.copies) + "; a node's is its host, or its --domain"}};
    case PutOutcome::kAborted:
      return {Outcome::kFailed, {Code::kUnavailable, "the put was aborted before it was started"}};
    default:
      return {Outcome::kFailed, Invalid(item, options)};
  }
}

bool IsMakingRoom(const PutStartReply::Item& item) {
  return item.outcome == PutOutcome::kMakingRoom;
}

bool IsMissingRoom(const PutStartReply::Item& item) {
  return item.outcome == PutOutcome::kOutOfSpace || IsMakingRoom(item);
}

// What an outcome says of a commit.
Client::Outcome OutcomeOf(const Status& status) {
  if (status.ok()) return Client::Outcome::kStored;
  const bool is_superseded = status.code() == Code::kAlreadyExists;
  return is_superseded ? Client::Outcome::kExists : Client::Outcome::kFailed;
}

}  // namespace

Result<PutStartReply> Client::AskToPut(PutStart& question, Session::Identity& identity) {
  Session& session = context_->session;
  for (int tries = 0; tries < kPutHellos; ++tries) {
    auto current = session.Current();
    if (!current.ok()) return current.status();
    identity = current.value();
    question.session = identity.id;
    auto reply = session.master().Call<PutStartReply>(MessageType::kPutStart, question,
                                                      session.CallDeadline());
    if (!reply.ok()) {
      AbortLater(identity, question);  // they may have been granted
      return reply.status();
    }
    if (reply.value().is_known) {
      if (reply.value().items.size() == question.items.size()) return reply;
      AbortLater(identity, question);
      return Status(Code::kWire, "the master answered another number of puts");
    }
    session.Forget(identity.id);
  }
  return Status(Code::kUnavailable, "the master does not keep this process's session");
}

// All that a question asked for: nobody has written there, so the aborts are clean.
void Client::AbortLater(const Session::Identity& identity, const PutStart& question) {
  for (const PutStart::Item& item : question.items) {
    context_->session.AbortLater(identity.id, {item.put_id, {}, {}});
  }
}

// Those for which the master still makes room, as nobody will ask for them again.
void Client::AbortMaking(const Session::Identity& identity, const PutStart& question,
                         const PutStartReply& reply) {
  PutAbort abort{identity.id, {}};
  for (size_t at = 0; at < reply.items.size(); ++at) {
    if (!IsMakingRoom(reply.items[at])) continue;
    abort.items.push_back({question.items[at].put_id, {}, {}});
  }
  Session& session = context_->session;
  if (abort.items.empty()) return;
  if (session.master().Tell(MessageType::kPutAbort, abort, session.CallDeadline()).ok()) return;
  for (const PutAbort::Item& item : abort.items) session.AbortLater(identity.id, item);
}

// What this process has read may be the room that is missing.
Status Client::SayReleased(const Session::Identity& identity) {
  Session& session = context_->session;
  store::Lookup nothing{identity.id, false, false, session.TakeReleased(identity.id), {}};
  if (nothing.released.empty()) return Status::Ok();
  return session.master()
      .Call<LookupReply>(MessageType::kLookup, nothing, session.CallDeadline())
      .status();
}

// Asks again, for all of them and with the same ids, while the master makes room.
Result<PutStartReply> Client::AskUntilThereIsRoom(PutStart& question, Session::Identity& identity) {
  const Deadline deadline = context_->session.CallDeadline();
  auto reply = AskToPut(question, identity);
  if (!reply.ok() || std::ranges::none_of(reply.value().items, IsMissingRoom)) return reply;
  if (const Status said = SayReleased(identity); !said.ok()) {
    AbortLater(identity, question);
    return said;
  }
  do {
    reply = AskToPut(question, identity);
    if (!reply.ok() || std::ranges::none_of(reply.value().items, IsMakingRoom)) return reply;
  } while (!deadline.passed());
  AbortMaking(identity, question, reply.value());
  return reply;
}

Result<Client::Puts> Client::StartPuts(std::span<const PutItem> items, const PutOptions& options) {
  Puts puts;
  while (!items.empty()) {
    const auto no_cost = [](const PutItem&) { return uint64_t{0}; };
    const size_t count = NextBatch(items, KeyBytesOf, no_cost, 0);
    if (const Status status = StartSome(items.first(count), options, puts); !status.ok()) {
      Abort(puts.items);
      return status;
    }
    items = items.subspan(count);
  }
  return puts;
}

// Appends to `puts`.
Status Client::StartSome(std::span<const PutItem> items, const PutOptions& options, Puts& puts) {
  DropStaleSegments();
  PutStart question;
  question.options = {options};
  PutOptions& wanted = question.options.front();
  if (wanted.replicas == 0) wanted.replicas = options_.replicas;
  wanted.has_checksums = wanted.has_checksums && options_.has_checksums;
  question.items.reserve(items.size());
  for (const PutItem& item : items) {
    question.items.push_back({context_->session.NextPutId(), item.key, item.size_bytes,
                              item.part_bytes, 0, item.parent, item.depth, item.group,
                              item.group_size});
  }
  Session::Identity identity;
  auto reply = AskUntilThereIsRoom(question, identity);
  if (!reply.ok()) return reply.status();
  PutStartReply& answer = reply.value();
  const auto nodes = std::make_shared<const std::vector<NodeAddress>>(std::move(answer.nodes));
  std::span<const Placement> placements(answer.placements);
  for (size_t at = 0; at < items.size(); ++at) {
    const PutStartReply::Item& grant = answer.items[at];
    const PutStart::Item& item = question.items[at];
    if (grant.outcome != PutOutcome::kStarted) {
      puts.items.push_back(Refused(grant, answer.space, item, wanted));
      if (grant.outcome == PutOutcome::kOutOfSpace) puts.space = answer.space;
      continue;
    }
    const Shape shape{item.size_bytes, item.part_bytes, grant.stripe_bytes};
    const uint64_t extents = shape.stripe_count() * grant.copies;
    const auto exists = [&](const Placement& one) { return one.node < nodes->size(); };
    const bool is_possible = shape.IsPossible() && extents > 0 && extents <= placements.size() &&
                             std::ranges::all_of(placements.first(extents), exists);
    if (!is_possible) {
      AbortLater(identity, question);
      return {Code::kWire, "the master placed an object nowhere"};
    }
    const auto own = placements.first(extents);
    placements = placements.subspan(extents);
    Writer::Grant granted{item.put_id, grant.generation,        shape, wanted.has_checksums,
                          nodes,       {own.begin(), own.end()}};
    puts.items.push_back(
        {Outcome::kStored, Status::Ok(),
         std::make_unique<Writer>(context_, identity, std::string(item.key), std::move(granted))});
  }
  return Status::Ok();
}

Client::PutResult Client::Put(std::span<const PutItem> items,
                              std::span<const std::span<const Range>> values,
                              const PutOptions& options) {
  PutResult result;
  result.items.reserve(items.size());
  while (!items.empty()) {
    const auto bytes = [](const PutItem& item) { return item.size_bytes; };
    const size_t count = NextBatch(items, KeyBytesOf, bytes, kPutBytes);
    uint64_t total = 0;
    for (const PutItem& item : items.first(count)) total += item.size_bytes;
    // Twice what one try may take: a node that stands still uses up a whole one.
    const double limit_s = 2 * context_->DataDeadline(total).seconds_left();
    const Tries tries{kPutTries - 1, Deadline::After(limit_s)};
    const Status status = PutSome(items.first(count), values.first(count), options, tries, result);
    if (!status.ok()) {  // none could be asked for: the others would fare no better
      result.items.resize(result.items.size() + items.size(), {Outcome::kFailed, status, 0});
      break;
    }
    items = items.subspan(count);
    values = values.subspan(count);
  }
  return result;
}

// Appends to `result`. Those of which no copy could be written are put again: the master has heard
// by then which nodes failed. What this very batch was holding may have been the room that was
// missing for some of it: they are tried again as long as others were stored.
Status Client::PutSome(std::span<const PutItem> items,
                       std::span<const std::span<const Range>> values, const PutOptions& options,
                       const Tries& tries, PutResult& result) {
  Puts puts;
  MC_RETURN_IF_ERROR(StartSome(items, options, puts));
  WriteAndEnd(values, puts.items);
  if (puts.space.capacity > 0) result.space = puts.space;
  const size_t first = result.items.size();
  bool has_stored = false;
  std::vector<size_t> short_of, given_up;
  for (Started& put : puts.items) {
    const size_t at = result.items.size() - first;
    has_stored |= put.outcome == Outcome::kStored;
    if (put.status.code() == Code::kOutOfSpace) short_of.push_back(at);
    const bool is_given_up = put.writer != nullptr && put.writer->is_given_up();
    if (put.outcome == Outcome::kFailed && is_given_up) given_up.push_back(at);
    const uint32_t copies = put.writer == nullptr ? 0 : put.writer->copy_count();
    result.items.push_back({put.outcome, put.status, copies});
  }
  Abort(puts.items);
  if (!has_stored) short_of.clear();
  if (tries.left == 0 || tries.deadline.passed()) given_up.clear();
  const Tries rest{tries.left - !given_up.empty(), tries.deadline};
  short_of.insert(short_of.end(), given_up.begin(), given_up.end());
  if (short_of.empty()) return Status::Ok();
  std::vector<PutItem> again;
  std::vector<std::span<const Range>> their_values;
  for (const size_t at : short_of) {
    again.push_back(items[at]);
    their_values.push_back(values[at]);
  }
  PutResult second;
  // A master that is away leaves them as they are.
  if (!PutSome(again, their_values, options, rest, second).ok()) return Status::Ok();
  if (second.space.capacity > 0) result.space = second.space;
  for (size_t at = 0; at < short_of.size(); ++at) {
    result.items[first + short_of[at]] = std::move(second.items[at]);
  }
  return Status::Ok();
}

void Client::WriteAndEnd(std::span<const std::span<const Range>> values,
                         std::vector<Started>& puts) {
  std::vector<WriteRequest> requests;
  std::vector<Started*> started;
  requests.reserve(puts.size());
  started.reserve(puts.size());
  for (size_t at = 0; at < puts.size(); ++at) {
    if (puts[at].writer == nullptr) continue;
    requests.push_back({puts[at].writer.get(), 0, values[at]});
    started.push_back(&puts[at]);
  }
  const auto written = Write(requests);
  std::vector<Writer*> ending;
  std::vector<Started*> ended;
  ending.reserve(puts.size());
  ended.reserve(puts.size());
  for (size_t at = 0; at < started.size(); ++at) {
    Started& put = *started[at];
    put.status = written[at];
    put.outcome = OutcomeOf(put.status);
    if (!put.status.ok()) continue;
    ending.push_back(put.writer.get());
    ended.push_back(&put);
  }
  const auto committed = Commit(ending);
  for (size_t at = 0; at < ended.size(); ++at) {
    ended[at]->outcome = OutcomeOf(committed[at]);
    const bool is_fault = ended[at]->outcome == Outcome::kFailed;
    ended[at]->status = is_fault ? committed[at] : Status::Ok();
  }
}

std::vector<Status> Client::Write(std::span<const WriteRequest> requests) {
  std::vector<Status> statuses(requests.size());
  if (requests.empty()) return statuses;
  Writer& first = *requests[0].writer;
  Haul haul(first.context(), Op::kWrite, first.owner().peer_id, first.has_checksums(),
            2 * requests.size());
  std::vector<Writer::Job> jobs(requests.size());
  for (size_t at = 0; at < requests.size(); ++at) {
    const WriteRequest& request = requests[at];
    // Rare, and not worth a haul of several identities: a session that began meanwhile.
    const bool fits = request.writer->owner().peer_id == first.owner().peer_id &&
                      request.writer->has_checksums() == first.has_checksums();
    if (fits) {
      statuses[at] = request.writer->Begin(request.offset, request.memory, haul, jobs[at]);
    } else {
      statuses[at] = request.writer->Write(request.offset, request.memory);
    }
    if (!fits || !statuses[at].ok()) jobs[at].end = UINT64_MAX;
  }
  haul.Run();
  for (size_t at = 0; at < requests.size(); ++at) {
    const WriteRequest& request = requests[at];
    if (jobs[at].end == UINT64_MAX) continue;
    statuses[at] = request.writer->Settle(haul, jobs[at]);
    // One item's wrong memory stops a whole batch before anything has moved.
    const bool may_be_innocent = IsCallersFault(statuses[at]) && requests.size() > 1;
    if (may_be_innocent) statuses[at] = request.writer->Write(request.offset, request.memory);
  }
  return statuses;
}

std::vector<Status> Client::Commit(std::span<Writer* const> writers) {
  std::vector<Status> statuses;
  statuses.reserve(writers.size());
  while (!writers.empty()) {
    const auto key_bytes = [](const Writer* writer) -> uint64_t { return writer->key().size(); };
    const auto chunks = [](const Writer* writer) { return writer->shape().chunk_count(); };
    const size_t count = NextBatch(writers, key_bytes, chunks, kMaxChunks);
    std::ranges::move(CommitSome(writers.first(count)), std::back_inserter(statuses));
    writers = writers.subspan(count);
  }
  return statuses;
}

void Client::Abort(std::span<const Started> puts) {
  while (!puts.empty()) {
    const auto some = puts.first(std::min(puts.size(), kMaxBatch));
    puts = puts.subspan(some.size());
    PutAbort abort;
    std::vector<Writer*> ending;
    for (const Started& put : some) {
      if (put.writer == nullptr) continue;
      if (ending.empty()) abort.session = put.writer->owner().id;
      if (put.writer->owner().id != abort.session) {
        put.writer->Abort();
      } else if (put.writer->PrepareAbort(abort)) {
        ending.push_back(put.writer.get());
      }
    }
    if (ending.empty()) continue;
    Session& session = context_->session;
    const Deadline deadline = session.CallDeadline();
    const bool is_heard = session.master().Tell(MessageType::kPutAbort, abort, deadline).ok();
    for (Writer* writer : ending) writer->FinishAbort(is_heard);
  }
}

// With one message.
std::vector<Status> Client::CommitSome(std::span<Writer* const> writers) {
  std::vector<Status> statuses(writers.size());
  PutEnd question;
  question.session = writers[0]->owner().id;
  std::vector<size_t> ending;
  for (size_t at = 0; at < writers.size(); ++at) {
    const bool fits = writers[at]->owner().id == question.session;
    statuses[at] = fits ? writers[at]->PrepareEnd(question) : writers[at]->Commit();
    if (fits && statuses[at].ok()) ending.push_back(at);
  }
  if (ending.empty()) return statuses;
  Session& session = context_->session;
  auto reply =
      session.master().Call<PutEndReply>(MessageType::kPutEnd, question, session.CallDeadline());
  if (reply.ok() && !reply.value().is_known) session.Forget(question.session);
  if (reply.ok()) reply.value().outcomes.resize(ending.size(), EndOutcome::kUnknown);
  for (size_t at = 0; at < ending.size(); ++at) {
    Writer& writer = *writers[ending[at]];
    if (reply.ok()) {
      statuses[ending[at]] = writer.FinishEnd(reply.value().outcomes[at]);
    } else {
      writer.FailEnd();
      statuses[ending[at]] = reply.status();
    }
  }
  return statuses;
}

}  // namespace mooncake::store
