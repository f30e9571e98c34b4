#include "store/client.h"

#include <algorithm>
#include <iterator>
#include <optional>

#include "store/batches.h"

namespace mooncake::store {
namespace {

constexpr size_t kMessagesAtOnce = 16;
constexpr int kReadHellos = 2;  // an expired session says hello once more, then gives up

std::vector<std::string_view> Views(std::span<const std::string_view> keys) {
  return {keys.begin(), keys.end()};
}

bool IsWhole(const Reader::Answer& answer) {
  return answer.reply.is_known &&
         std::ranges::all_of(answer.reply.items, &LookupReply::Item::found);
}

// The flags of `count` keys.
Result<std::vector<bool>> Joined(std::vector<Flags> replies, size_t count) {
  std::vector<bool> flags;
  if (!replies.empty()) flags = std::move(replies.front().flags);
  for (size_t at = 1; at < replies.size(); ++at) {
    flags.insert(flags.end(), replies[at].flags.begin(), replies[at].flags.end());
  }
  if (flags.size() == count) return flags;
  return Status(Code::kWire, "the master answered another number of keys");
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

Result<std::shared_ptr<Reader>> Client::Open(const std::vector<std::string_view>& keys,
                                             bool stop_at_miss) {
  return OpenAs(keys, stop_at_miss ? Hold::kLeading : Hold::kAll);
}

Result<std::shared_ptr<ObjectView>> Client::OpenView(std::string_view key) {
  auto reader = OpenAs({&key, 1}, Hold::kPinned);
  if (!reader.ok()) return reader.status();
  return ObjectView::Make(context_, std::move(reader).value());
}

Result<std::shared_ptr<Reader>> Client::OpenAs(std::span<const std::string_view> keys, Hold hold) {
  DropStaleSegments();
  std::optional<Session::PinQuestion> question;
  if (hold == Hold::kPinned) question.emplace(context_->session);
  for (int tries = 0; tries < kReadHellos; ++tries) {
    auto identity = context_->session.Current();
    if (!identity.ok()) return identity.status();
    auto answers = Lookup(keys, hold, identity.value());
    if (!answers.ok()) return answers.status();
    const bool is_known = std::ranges::all_of(
        answers.value(), [](const Reader::Answer& one) { return one.reply.is_known; });
    if (is_known) {
      return Reader::Make(context_, identity.value(), keys, std::move(answers).value());
    }
    context_->session.Forget(identity.value().id);
  }
  return Status(Code::kUnavailable, "the master does not keep this process's session");
}

// For a leading run message by message, up to the one with the first miss.
Result<std::vector<Reader::Answer>> Client::Lookup(std::span<const std::string_view> keys,
                                                   Hold hold, const Session::Identity& identity) {
  const bool stop_at_miss = hold == Hold::kLeading;
  const bool is_pin = hold == Hold::kPinned;
  const auto make = [&](std::span<const std::string_view> some) {
    return store::Lookup{identity.id, stop_at_miss, is_pin,
                         context_->session.TakeReleased(identity.id), Views(some)};
  };
  std::vector<Reader::Answer> answers;
  while (!keys.empty()) {
    const size_t count = stop_at_miss ? NextBatch(keys) : keys.size();
    const double asked_s = MonotonicSeconds();
    std::vector<LookupReply> replies;
    MC_RETURN_IF_ERROR(AskInSome(MessageType::kLookup, keys.first(count), make, replies));
    for (LookupReply& reply : replies) {
      const auto asked = keys.first(NextBatch(keys));
      keys = keys.subspan(asked.size());
      if (reply.is_too_large) {
        MC_RETURN_IF_ERROR(LookUpHalves(asked, hold, identity, answers));
      } else if (reply.is_known && reply.items.size() != asked.size()) {
        return Status(Code::kWire, "the master answered another number of keys");
      } else {
        answers.push_back({std::move(reply), asked_s, is_pin});
      }
    }
    if (stop_at_miss && !IsWhole(answers.back())) break;
  }
  return answers;
}

// Of keys whose answer would not fit a message.
Status Client::LookUpHalves(std::span<const std::string_view> keys, Hold hold,
                            const Session::Identity& identity,
                            std::vector<Reader::Answer>& answers) {
  if (keys.size() < 2) return {Code::kWire, "what the master says of one object fits no message"};
  const size_t half = keys.size() / 2;
  for (const auto some : {keys.first(half), keys.subspan(half)}) {
    auto more = Lookup(some, hold, identity);
    if (!more.ok()) return more.status();
    std::ranges::move(more.value(), std::back_inserter(answers));
    if (hold == Hold::kLeading && !IsWhole(answers.back())) break;
  }
  return Status::Ok();
}

template <typename Reply, typename Request>
Result<Reply> Client::Ask(MessageType type, const Request& request) {
  Session& session = context_->session;
  MC_RETURN_IF_ERROR(session.CheckOpen());
  return session.master().Call<Reply>(type, request, session.CallDeadline());
}

// Appends a reply of each message with some of the keys. A few messages are under way at once.
template <typename Reply, typename Make>
Status Client::AskInSome(MessageType type, std::span<const std::string_view> keys, Make make,
                         std::vector<Reply>& replies) {
  Session& session = context_->session;
  MC_RETURN_IF_ERROR(session.CheckOpen());
  while (!keys.empty()) {
    std::vector<decltype(make(keys))> questions;
    for (size_t at = 0; at < kMessagesAtOnce && !keys.empty(); ++at) {
      const size_t count = NextBatch(keys);
      questions.push_back(make(keys.first(count)));
      keys = keys.subspan(count);
    }
    auto some = session.master().CallAll<Reply>(type, questions, session.CallDeadline());
    if (!some.ok()) return some.status();
    if (replies.empty()) {
      replies = std::move(some).value();
    } else {
      std::ranges::move(some.value(), std::back_inserter(replies));
    }
  }
  return Status::Ok();
}

template <typename Reply>
Result<std::vector<Reply>> Client::AskOfKeys(MessageType type,
                                             std::span<const std::string_view> keys) {
  std::vector<Reply> replies;
  const auto make = [](std::span<const std::string_view> some) { return Keys{Views(some)}; };
  MC_RETURN_IF_ERROR(AskInSome(type, keys, make, replies));
  return replies;
}

Result<std::vector<bool>> Client::AskForFlags(MessageType type,
                                              std::span<const std::string_view> keys) {
  auto replies = AskOfKeys<Flags>(type, keys);
  if (!replies.ok()) return replies.status();
  return Joined(std::move(replies).value(), keys.size());
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
  std::vector<Flags> replies;
  const auto make = [&](std::span<const std::string_view> some) {
    return store::SetPin{pin, soft_pin_s, Views(some)};
  };
  MC_RETURN_IF_ERROR(AskInSome(MessageType::kSetPin, keys, make, replies));
  return Joined(std::move(replies), keys.size());
}

Result<std::vector<Objects>> Client::Describe(std::span<const std::string_view> keys) {
  return AskOfKeys<Objects>(MessageType::kDescribe, keys);
}

Result<Objects> Client::List(std::string_view prefix, uint64_t cursor, uint32_t limit) {
  return Ask<Objects>(MessageType::kList, store::List{cursor, limit, prefix});
}

Result<Stats> Client::Report() { return Ask<Stats>(MessageType::kStats, One{}); }

}  // namespace mooncake::store
