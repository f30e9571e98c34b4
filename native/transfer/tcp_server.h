// TcpServer: accepts TCP connections and owns them.
//
// Thread safety: Create and endpoint() by any thread; all else on the loop's thread.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/fd.h"
#include "base/socket.h"
#include "base/status.h"
#include "transfer/listener.h"
#include "transfer/loop.h"
#include "transfer/owner.h"

namespace mooncake {

class TcpConnection;

class TcpServer : public Watcher, public std::enable_shared_from_this<TcpServer> {
 public:
  static Result<std::shared_ptr<TcpServer>> Create(const Address& listen, Owner& owner);
  ~TcpServer() override;

  const std::string& endpoint() const { return endpoint_; }

  void Start();
  void OnReady(uint64_t token, uint32_t events) override;
  // Closes the connections of one peer; nothing of theirs touches memory afterwards.
  void CloseOf(uint64_t peer_id);
  // After a segment was closed: nothing touches it afterwards.
  void Withdraw(uint64_t segment_id);
  void Stop();

 private:
  friend class TcpConnection;

  TcpServer(Fd listener, std::string endpoint, Owner& owner);
  void CloseIf(const std::function<bool(const TcpConnection&)>& is_meant);
  void Drop(TcpConnection& connection);

  Listener listener_;
  const std::string endpoint_;
  Owner& owner_;
  uint64_t token_ = 0;
  std::unordered_map<TcpConnection*, std::shared_ptr<TcpConnection>> connections_;
};

}  // namespace mooncake
