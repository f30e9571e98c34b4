#include "store/client.h"

#include <algorithm>

#include "store/batches.h"

namespace mooncake::store {
namespace {

constexpr int kReadHellos = 2;  // an expired session says hello once more, then gives up

template <typename K>
std::vector<std::string_view> Views(std::span<const K> keys) {
  return {keys.begin(), keys.end()};
}

}  // namespace

Client::Client(std::shared_ptr<Engine> engine, const Options& options)
    : context_(std::make_shared<Context>(engine, options.master, options.timeout_s,
                                         options.has_checksums)),
      options_(options) {}

// Segments of an earlier epoch are of no use; keeping them mapped would keep their memory.
void Client::DropStaleSegments() {
  const uint64_t epoch = context_->session.epoch();
  if (segments_epoch_.exchange(epoch) != epoch) context_->segments.Clear();
}

Result<std::shared_ptr<Reader>> Client::Open(std::vector<std::string> keys, bool stop_at_miss) {
  return OpenAs(std::move(keys), stop_at_miss ? Hold::kLeading : Hold::kAll);
}

Result<std::shared_ptr<ObjectView>> Client::OpenView(std::string key) {
  auto reader = OpenAs({std::move(key)}, Hold::kPinned);
  if (!reader.ok()) return reader.status();
  return ObjectView::Make(context_, std::move(reader).value());
}

Result<std::shared_ptr<Reader>> Client::OpenAs(std::vector<std::string> keys, Hold hold) {
  DropStaleSegments();
  for (int tries = 0; tries < kReadHellos; ++tries) {
    auto identity = context_->session.Current();
    if (!identity.ok()) return identity.status();
    auto answers = Lookup(keys, hold, identity.value());
    if (!answers.ok()) return answers.status();
    const bool is_known = std::ranges::all_of(
        answers.value(), [](const Reader::Answer& one) { return one.reply.is_known; });
    if (is_known) {
      return Reader::Make(context_, identity.value(), std::move(keys), std::move(answers).value());
    }
    context_->session.Forget(identity.value().id);
  }
  return Status(Code::kUnavailable, "the master does not keep this process's session");
}

// Message by message; for a leading run up to the one with the first miss.
Result<std::vector<Reader::Answer>> Client::Lookup(std::span<const std::string> keys, Hold hold,
                                                   const Session::Identity& identity) {
  Session& session = context_->session;
  const bool stop_at_miss = hold == Hold::kLeading;
  std::vector<Reader::Answer> answers;
  while (!keys.empty()) {
    const size_t count = NextBatch(keys);
    const store::Lookup question{identity.id, stop_at_miss, hold == Hold::kPinned,
                                 session.TakeReleased(identity.id), Views(keys.first(count))};
    Reader::Answer& answer = answers.emplace_back();
    answer.asked_s = MonotonicSeconds();
    answer.is_pin = hold == Hold::kPinned;
    auto reply =
        session.master().Call<LookupReply>(MessageType::kLookup, question, session.CallDeadline());
    if (!reply.ok()) return reply.status();
    answer.reply = std::move(reply).value();
    const auto& items = answer.reply.items;
    const bool is_whole = std::ranges::all_of(items, &LookupReply::Item::found);
    if (!answer.reply.is_known || (stop_at_miss && !is_whole)) break;
    if (items.size() != count) {
      return Status(Code::kWire, "the master answered another number of keys");
    }
    keys = keys.subspan(count);
  }
  return answers;
}

template <typename Reply, typename Request>
Result<Reply> Client::Ask(MessageType type, const Request& request) {
  Session& session = context_->session;
  if (session.is_closed()) return Status(Code::kClosed, "the store client is closed");
  return session.master().Call<Reply>(type, request, session.CallDeadline());
}

template <typename Reply>
Result<std::vector<Reply>> Client::AskOfKeys(MessageType type,
                                             std::span<const std::string_view> keys) {
  std::vector<Reply> replies;
  while (!keys.empty()) {
    const size_t count = NextBatch(keys);
    auto reply = Ask<Reply>(type, Keys{Views(keys.first(count))});
    if (!reply.ok()) return reply.status();
    replies.push_back(std::move(reply).value());
    keys = keys.subspan(count);
  }
  return replies;
}

Result<std::vector<bool>> Client::AskForFlags(MessageType type,
                                              std::span<const std::string_view> keys) {
  auto replies = AskOfKeys<Flags>(type, keys);
  if (!replies.ok()) return replies.status();
  std::vector<bool> flags;
  for (const Flags& some : replies.value()) {
    flags.insert(flags.end(), some.flags.begin(), some.flags.end());
  }
  if (flags.size() == keys.size()) return flags;
  return Status(Code::kWire, "the master answered another number of keys");
}

Result<std::vector<bool>> Client::Exists(std::span<const std::string_view> keys) {
  return AskForFlags(MessageType::kExists, keys);
}

Result<std::vector<bool>> Client::Remove(std::span<const std::string_view> keys) {
  return AskForFlags(MessageType::kRemove, keys);
}

Result<uint64_t> Client::MatchPrefix(std::span<const std::string_view> keys) {
  uint64_t matched = 0;
  while (!keys.empty()) {
    const size_t count = NextBatch(keys);
    auto reply = Ask<One>(MessageType::kMatchPrefix, Keys{Views(keys.first(count))});
    if (!reply.ok()) return reply.status();
    matched += reply.value().value;
    if (reply.value().value < count) break;
    keys = keys.subspan(count);
  }
  return matched;
}

Result<std::vector<bool>> Client::SetPin(std::span<const std::string_view> keys, Pin pin,
                                         double soft_pin_s) {
  std::vector<bool> flags;
  while (!keys.empty()) {
    const size_t count = NextBatch(keys);
    const store::SetPin question{pin, soft_pin_s, Views(keys.first(count))};
    auto reply = Ask<Flags>(MessageType::kSetPin, question);
    if (!reply.ok()) return reply.status();
    const auto& some = reply.value().flags;
    flags.insert(flags.end(), some.begin(), some.end());
    keys = keys.subspan(count);
  }
  return flags;
}

Result<std::vector<Objects>> Client::Describe(std::span<const std::string_view> keys) {
  return AskOfKeys<Objects>(MessageType::kDescribe, keys);
}

Result<Objects> Client::List(std::string_view prefix, uint64_t cursor, uint32_t limit) {
  return Ask<Objects>(MessageType::kList, store::List{cursor, limit, prefix});
}

Result<Stats> Client::Report() { return Ask<Stats>(MessageType::kStats, One{}); }

}  // namespace mooncake::store
