// MasterClient: questions to the master and their answers, blocking, over pooled connections.
//
// Thread safety: all methods may be called by any thread; each call has a connection of its own
// while it lasts.
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include "base/deadline.h"
#include "base/fd.h"
#include "base/socket.h"
#include "base/status.h"
#include "store/codec.h"

namespace mooncake::store {

class MasterClient {
 public:
  explicit MasterClient(std::string address) : address_(std::move(address)) {}

  // kUnavailable when the master cannot be reached, or does not answer in time: it may then have
  // acted on the question or not. A question that was lost on an old connection is asked once more,
  // so the master sees some twice.
  template <typename Reply, typename Request>
  Result<Reply> Call(MessageType type, const Request& request, Deadline deadline) {
    std::vector<uint8_t> body;
    Encode(request, body);
    std::vector<uint8_t> answer;
    MC_RETURN_IF_ERROR(Exchange(type, body, deadline, &answer));
    return Decode<Reply>(answer);
  }

  // Says something that is not answered. Lost in silence when the connection breaks.
  template <typename Request>
  Status Notify(MessageType type, const Request& request, Deadline deadline) {
    std::vector<uint8_t> body;
    Encode(request, body);
    return Exchange(type, body, deadline, nullptr);
  }

  const std::string& address() const { return address_; }

 private:
  Status Exchange(MessageType type, const std::vector<uint8_t>& body, Deadline deadline,
                  std::vector<uint8_t>* answer);
  Status ExchangeOn(const Fd& socket, MessageType type, const std::vector<uint8_t>& body,
                    Deadline deadline, std::vector<uint8_t>* answer);
  Status Receive(const Fd& socket, MessageType type, uint64_t request_id, Deadline deadline,
                 std::vector<uint8_t>& answer);
  Result<Fd> Connect(Deadline deadline);
  Fd TakeIdle();
  void KeepIdle(Fd socket);

  const std::string address_;
  std::mutex mutex_;
  std::vector<Fd> idle_;
  uint64_t last_request_ = 0;
};

}  // namespace mooncake::store
