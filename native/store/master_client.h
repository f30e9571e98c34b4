// MasterClient: questions to the master and their answers, blocking, over pooled connections.
//
// Thread safety: all methods may be called by any thread; each call has a connection of its own
// while it lasts.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "store/codec.h"
#include "store/line.h"

namespace mooncake::store {

class MasterClient {
 public:
  explicit MasterClient(std::string address) : address_(std::move(address)) {}

  // kUnavailable when the master cannot be reached, or does not answer in time: it may then have
  // acted on the question or not. A question that was lost on an old connection is asked once more,
  // so the master sees some twice.
  template <typename Reply, typename Request>
  Result<Reply> Call(MessageType type, const Request& request, Deadline deadline) {
    Line line = TakeIdle();
    line.Begin(type, /*is_answered=*/true);
    MC_RETURN_IF_ERROR(line.Add(request));
    Reply reply;
    MC_RETURN_IF_ERROR(Exchange(std::move(line), deadline,
                                [&](size_t, auto body) { return DecodeTo(reply, body); }));
    return reply;
  }

  // Several questions of one type in flight at once; the master carries them out in their order.
  // One reply each, in the same order; or the first error, and then each but the answered ones
  // before it may have been acted on or not.
  template <typename Reply, typename Request>
  Result<std::vector<Reply>> CallAll(MessageType type, const std::vector<Request>& requests,
                                     Deadline deadline) {
    std::vector<Reply> replies(requests.size());
    if (requests.empty()) return replies;
    Line line = TakeIdle();
    line.Begin(type, /*is_answered=*/true);
    for (const Request& request : requests) MC_RETURN_IF_ERROR(line.Add(request));
    MC_RETURN_IF_ERROR(Exchange(std::move(line), deadline, [&](size_t index, auto body) {
      return DecodeTo(replies[index], body);
    }));
    return replies;
  }

  // Says something whose answer says no more than that it was heard. Errors as of Call.
  template <typename Request>
  Status Tell(MessageType type, const Request& request, Deadline deadline) {
    Line line = TakeIdle();
    line.Begin(type, /*is_answered=*/true);
    MC_RETURN_IF_ERROR(line.Add(request));
    return Exchange(std::move(line), deadline, [](size_t, auto) { return Status::Ok(); });
  }

  // Says something that is not answered. Lost in silence when the connection breaks.
  template <typename Request>
  Status Notify(MessageType type, const Request& request, Deadline deadline) {
    Line line = TakeIdle();
    line.Begin(type, /*is_answered=*/false);
    MC_RETURN_IF_ERROR(line.Add(request));
    return Exchange(std::move(line), deadline, {});
  }

  // Drops what is not in use, and keeps nothing from now on.
  void Close();

  const std::string& address() const { return address_; }

 private:
  template <typename Reply>
  static Status DecodeTo(Reply& reply, std::span<const uint8_t> body) {
    auto decoded = Decode<Reply>(body);
    if (decoded.ok()) reply = std::move(decoded).value();
    return decoded.status();
  }

  Status Exchange(Line line, Deadline deadline, const Line::Take& take);
  Status ExchangeAnew(Line& line, Deadline deadline, const Line::Take& take);
  Line TakeIdle();
  void KeepIdle(Line line);

  const std::string address_;
  std::mutex mutex_;
  std::vector<Line> idle_;
  bool is_closed_ = false;
};

}  // namespace mooncake::store
