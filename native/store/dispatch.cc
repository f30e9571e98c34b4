#include "store/dispatch.h"

#include <algorithm>
#include <string>

namespace mooncake::store {
namespace {

template <typename Item>
size_t LongestOf(const Item& item) {
  size_t most = 0;
  if constexpr (requires { item.lost; }) most = item.lost.size();
  if constexpr (requires { item.dirty; }) {
    most = std::max({most, item.dirty.size(), item.failed.size()});
  }
  return most;
}

// How long the longest list of a message is.
template <typename M>
size_t CountOf(const M& message) {
  size_t most = 0;
  const auto add = [&](const auto& list) { most = std::max(most, list.size()); };
  if constexpr (requires { message.items; }) {
    add(message.items);
    for (const auto& item : message.items) most = std::max(most, LongestOf(item));
  }
  if constexpr (requires { message.options; }) add(message.options);
  if constexpr (requires { message.released; }) add(message.released);
  if constexpr (requires { message.keys; }) add(message.keys);
  if constexpr (requires { message.leases; }) add(message.leases);
  if constexpr (requires { message.pins; }) add(message.pins);
  if constexpr (requires { message.tasks; }) add(message.tasks);
  if constexpr (requires { message.targets; }) add(message.targets);
  if constexpr (requires { message.fenced; }) add(message.fenced);
  if constexpr (requires { message.finished; }) {
    add(message.finished);
    for (const auto& result : message.finished) add(result.corrupt);
  }
  return most;
}

// More would keep all others waiting.
template <typename M>
Result<M> DecodeBatch(std::span<const uint8_t> body) {
  Result<M> message = Decode<M>(body);
  if (!message.ok() || CountOf(message.value()) <= kMaxBatch) return message;
  return Status(Code::kInvalidArgument,
                "a message with a list of " + std::to_string(CountOf(message.value())) +
                    "; at most " + std::to_string(kMaxBatch) + " go into one, make several of it");
}

// An answer that is none: it would be without bound and was not even made, or there may be no more.
template <typename R>
Status CheckReply(const R& reply, size_t count) {
  if constexpr (requires { reply.is_refused; }) {
    if (reply.is_refused) {
      return {Code::kInvalidArgument, "the answer to a list of " + std::to_string(count) +
                                          " takes more than 48 MiB; ask for fewer at once"};
    }
  } else if constexpr (requires { reply.is_full; }) {
    if (reply.is_full) {
      return {Code::kUnavailable, "it has as many clients as it takes; try again later"};
    }
  }
  return Status::Ok();
}

// Decodes an M, hands it to `handle`, and encodes what that returns.
template <typename M, typename F>
Status Answer(std::span<const uint8_t> body, std::vector<uint8_t>& answer, F handle) {
  Result<M> message = DecodeBatch<M>(body);
  if (!message.ok()) return message.status();
  if constexpr (std::is_void_v<decltype(handle(message.value()))>) {
    handle(message.value());
  } else {
    const auto reply = handle(message.value());
    MC_RETURN_IF_ERROR(CheckReply(reply, CountOf(message.value())));
    Encode(reply, answer);
  }
  return Status::Ok();
}

Status DispatchNode(MasterCore& core, MessageType type, std::span<const uint8_t> body,
                    DispatchContext& context, std::vector<uint8_t>& answer) {
  auto step = [&](auto& message) {
    const NodeReply reply = core.Step(message, context.now_s);
    context.node = reply.is_known ? message.node : 0;
    return reply;
  };
  if (type == MessageType::kNodeRegister) return Answer<NodeRegister>(body, answer, step);
  if (type == MessageType::kNodeHeartbeat) return Answer<NodeHeartbeat>(body, answer, step);
  return Answer<One>(body, answer, [&](One& node) { core.NodeGoodbye(node.value); });
}

}  // namespace

Status Dispatch(MasterCore& core, uint8_t type, std::span<const uint8_t> body,
                DispatchContext& context, std::vector<uint8_t>& answer) {
  auto step = [&](auto& message) { return core.Step(message, context.now_s); };
  switch (static_cast<MessageType>(type)) {
    case MessageType::kHello:
      return Answer<Hello>(body, answer, [&](Hello& hello) {
        hello.session = context.fresh_id;
        return core.Step(hello, context.now_s);
      });
    case MessageType::kHeartbeat:
      return Answer<Heartbeat>(body, answer, step);
    case MessageType::kGoodbye:
      return Answer<One>(body, answer,
                         [&](One& session) { core.Goodbye(session.value, context.now_s); });
    case MessageType::kPutStart:
      return Answer<PutStart>(body, answer, step);
    case MessageType::kPutEnd:
      return Answer<PutEnd>(body, answer, step);
    case MessageType::kPutAbort:
      return Answer<PutAbort>(body, answer, step);
    case MessageType::kLookup:
      return Answer<Lookup>(body, answer, step);
    case MessageType::kRelease:
      return Answer<Release>(body, answer, step);
    case MessageType::kExists:
      return Answer<Keys>(body, answer, [&](Keys& keys) { return Flags{core.Exists(keys.keys)}; });
    case MessageType::kMatchPrefix:
      return Answer<Keys>(body, answer,
                          [&](Keys& keys) { return One{core.MatchPrefix(keys.keys)}; });
    case MessageType::kRemove:
      return Answer<Keys>(body, answer, [&](Keys& keys) { return Flags{core.Remove(keys.keys)}; });
    case MessageType::kCorrupt:
      return Answer<CorruptReport>(body, answer, [&](CorruptReport& report) {
        core.ReportCorrupt(report.key, report.generation, report.node);
      });
    case MessageType::kNodeRegister:
    case MessageType::kNodeHeartbeat:
    case MessageType::kNodeGoodbye:
      return DispatchNode(core, static_cast<MessageType>(type), body, context, answer);
    case MessageType::kStats:
      return Answer<One>(body, answer, [&](One&) { return core.Report(); });
    case MessageType::kDescribe:
      return Answer<Describe>(body, answer, [&](Describe& event) { return core.Step(event); });
    case MessageType::kList:
      return Answer<List>(body, answer, [&](List& event) { return core.Step(event); });
    case MessageType::kSetPin:
      return Answer<SetPin>(body, answer,
                            [&](SetPin& event) { return Flags{core.Step(event, context.now_s)}; });
    case MessageType::kTaskCreate:
      return Answer<TaskCreate>(body, answer, step);
    case MessageType::kTaskQuery:
      return Answer<TaskQuery>(body, answer, step);
  }
  return Status(Code::kWire, "message type " + std::to_string(type) + " is unknown");
}

}  // namespace mooncake::store
