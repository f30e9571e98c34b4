#include "store/dispatch.h"

#include <algorithm>
#include <string>

namespace mooncake::store {
namespace {

// How long the longest list of a message is, wherever it is in it. Checksums do not count: what is
// done with each takes no longer than to send it.
class Longest {
 public:
  template <typename... T>
  bool operator()(T&... fields) {
    (Look(fields), ...);
    return true;
  }
  size_t length() const { return length_; }

 private:
  void Look(std::vector<uint32_t>&) {}
  template <typename T>
  void Look(std::vector<T>& list) {
    length_ = std::max(length_, list.size());
    for (T& each : list) Look(each);
  }
  template <typename T>
  void Look(T& field) {
    if constexpr (requires { Fields(*this, field); }) Fields(*this, field);
  }

  size_t length_ = 0;
};

// More would keep all others waiting.
template <typename M>
Result<M> DecodeBatch(std::span<const uint8_t> body) {
  Result<M> message = Decode<M>(body);
  if (!message.ok()) return message;
  Longest longest;
  Fields(longest, message.value());
  if (longest.length() <= kMaxBatch) return message;
  return Status(Code::kInvalidArgument,
                "a message with a list of " + std::to_string(longest.length()) + "; at most " +
                    std::to_string(kMaxBatch) + " go into one, make several of it");
}

template <typename R>
Status EncodeReply(const R& reply, std::vector<uint8_t>& answer) {
  Encode(reply, answer);
  return Status::Ok();
}
template <typename R>
Status EncodeReply(const Result<R>& reply, std::vector<uint8_t>& answer) {
  if (reply.ok()) Encode(reply.value(), answer);
  return reply.status();
}

// Decodes an M, hands it to `handle`, and encodes what that returns.
template <typename M, typename F>
Status Answer(std::span<const uint8_t> body, std::vector<uint8_t>& answer, F handle) {
  Result<M> message = DecodeBatch<M>(body);
  if (!message.ok()) return message.status();
  if constexpr (std::is_void_v<decltype(handle(message.value()))>) {
    handle(message.value());
  } else {
    return EncodeReply(handle(message.value()), answer);
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
