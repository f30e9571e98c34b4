// MasterServer: the shell of the master: one thread that waits on sockets and hands their requests
// to the core, one after another, and connection by connection: who has sent much is answered in
// turns.
//
// Thread safety: Start and Stop by one thread; the rest by any.
// Ownership: owns its thread and its sockets; destroying it stops it.
#pragma once

#include <sys/epoll.h>

#include <deque>
#include <memory>
#include <span>
#include <string>
#include <thread>
#include <unordered_map>
#include <utility>

#include "base/fd.h"
#include "base/socket.h"
#include "base/status.h"
#include "store/connection.h"
#include "store/dispatch.h"

namespace mooncake::store {

class MasterServer {
 public:
  // Listens on `listen`, and at the door of that address, and starts. A connection on which nothing
  // is asked for `patience_s` from its start is closed. kInvalidArgument or kSystem, naming the
  // address.
  static Result<std::unique_ptr<MasterServer>> Start(const std::string& listen,
                                                     const MasterOptions& options,
                                                     double patience_s = 10);
  ~MasterServer() { Stop(); }

  const std::string& endpoint() const { return endpoint_; }  // host:port that is bound
  // All connections end, and the address is free.
  void Stop();

 private:
  struct Client {
    Client(Fd socket, uint64_t serial) : connection(std::move(socket)), serial(serial) {}
    Connection connection;
    const uint64_t serial;    // descriptors come again, this does not
    bool has_spoken = false;  // a whole frame
    bool is_due = false;      // its turn has ended before it was answered all that it had sent
    NodeId node = 0;          // when a store node speaks on it
    uint32_t watched = 0;     // epoll events
  };

  struct Stranger {  // a client that has perhaps not spoken yet
    int fd;
    uint64_t serial;
    double end_s;
  };

  MasterServer(Fd listener, const Address& bound, const MasterOptions& options, double patience_s);
  Status Open();
  void Run();
  int Wait(std::span<epoll_event> events, bool has_served);
  void Serve(int fd, uint32_t events);
  bool Listen(const Fd& listener);
  void Accept(int listener);
  void StopAccepting();
  void AddStranger(const Client& client);
  void DropFirstStranger();
  bool TakeTurn(Client& client);
  void ServeDue();
  bool Handle(Client& client, double end_s);
  bool Answer(Client& client, const FrameBuffer::Frame& frame);
  bool Refuse(Client& client, const Status& why, size_t begin, uint64_t request_id);
  void Watch(Client& client);
  void Close(int fd);
  void Tick(double now_s);

  Fd listener_, door_;  // without a door all come by TCP
  Fd epoll_, wake_;
  const std::string endpoint_;
  const double patience_s_;
  MasterCore core_;
  std::deque<Stranger> strangers_;            // in the order of their coming
  std::deque<std::pair<int, uint64_t>> due_;  // descriptors and serials
  uint64_t last_serial_ = 0;
  std::unordered_map<int, std::unique_ptr<Client>> clients_;
  bool is_accepting_ = false;
  double next_tick_s_ = 0;
  std::thread thread_;
};

}  // namespace mooncake::store
