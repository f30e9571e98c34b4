#include "store/master_server.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>

#include "base/check.h"
#include "base/deadline.h"
#include "base/random.h"
#include "base/socket.h"
#include "base/spin.h"
#include "store/door.h"

namespace mooncake::store {
namespace {

constexpr double kTick_s = 0.1;
constexpr double kTurn_s = 1e-3;     // of one connection, before the others have theirs
constexpr size_t kTurnsARound = 64;  // of those that had more to ask
constexpr size_t kMaxClients = 16'384;
constexpr size_t kMaxStrangers = 1024;  // the first of more makes room

}  // namespace

Result<std::unique_ptr<MasterServer>> MasterServer::Start(const std::string& listen,
                                                          const MasterOptions& options,
                                                          double patience_s) {
  MC_RETURN_IF_ERROR(Validate(options));
  auto address = ParseAddress(listen);
  if (!address.ok()) return address.status();
  auto listener = ListenTcp(address.value());
  if (!listener.ok()) return listener.status();
  auto bound = LocalAddress(listener.value());
  if (!bound.ok()) return bound.status();
  std::unique_ptr<MasterServer> server(
      new MasterServer(std::move(listener).value(), bound.value(), options, patience_s));
  MC_RETURN_IF_ERROR(server->Open());
  server->thread_ = std::thread([raw = server.get()] { raw->Run(); });
  return server;
}

MasterServer::MasterServer(Fd listener, const Address& bound, const MasterOptions& options,
                           double patience_s)
    : listener_(std::move(listener)),
      endpoint_(bound.ToString()),
      patience_s_(patience_s),
      core_(options) {
  if (auto door = OpenDoor(bound); door.ok()) door_ = std::move(door).value();
}

Status MasterServer::Open() {
  epoll_.Reset(epoll_create1(EPOLL_CLOEXEC));
  wake_.Reset(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!epoll_.valid() || !wake_.valid()) return SystemError("opening the master's event loop");
  epoll_event event{.events = EPOLLIN, .data = {.fd = wake_.get()}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_.get(), &event) < 0) {
    return SystemError("watching the master's wake-up");
  }
  return Status::Ok();
}

void MasterServer::Stop() {
  if (!thread_.joinable()) return;
  const uint64_t one = 1;
  MC_CHECK(write(wake_.get(), &one, sizeof one) == sizeof one, "eventfd");
  thread_.join();
  clients_.clear();
  door_.Reset();
  listener_.Reset();
}

void MasterServer::Run() {
  std::array<epoll_event, 64> events;
  int count = 0;
  for (;;) {
    const double now_s = MonotonicSeconds();
    if (now_s >= next_tick_s_) Tick(now_s);
    count = Wait(events, count > 0);
    for (int at = 0; at < count; ++at) {
      const int fd = events[at].data.fd;
      if (fd == wake_.get()) return;
      if (fd == listener_.get() || fd == door_.get()) {
        Accept(fd);
      } else {
        Serve(fd, events[at].events);
      }
    }
    ServeDue();
    if (core_.has_background()) core_.RunSlice(MonotonicSeconds());
  }
}

// Who has just been served often asks again at once: it is not slept before a while without
// questions. Never beyond the next tick.
int MasterServer::Wait(std::span<epoll_event> events, bool has_served) {
  const auto wait = [&](int wait_ms) {
    return epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wait_ms);
  };
  if (core_.has_background() || !due_.empty()) return wait(0);
  if (has_served) {
    Spin spin;
    do {
      const int count = wait(0);
      if (count > 0) return count;
    } while (spin.Again());
  }
  const double left_s = next_tick_s_ - MonotonicSeconds();
  return wait(std::max(0, static_cast<int>(std::ceil(left_s * 1e3))));
}

// Out of descriptors, accepting stops until the next tick rather than spinning.
void MasterServer::Tick(double now_s) {
  core_.Tick(now_s);
  while (!strangers_.empty() && strangers_.front().end_s <= now_s) DropFirstStranger();
  next_tick_s_ = now_s + kTick_s;
  if (is_accepting_ || clients_.size() >= kMaxClients) return;
  is_accepting_ = Listen(listener_) && (!door_.valid() || Listen(door_));
}

bool MasterServer::Listen(const Fd& listener) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = listener.get()}};
  const int added = epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, listener.get(), &event);
  return added == 0 || errno == EEXIST;
}

void MasterServer::StopAccepting() {
  for (const Fd* listener : {&listener_, &door_}) {
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, listener->get(), nullptr);
  }
  is_accepting_ = false;
}

void MasterServer::Accept(int listener) {
  if (clients_.size() >= kMaxClients) return StopAccepting();
  Fd socket(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket.valid()) {
    const bool is_short = errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
    return is_short ? StopAccepting() : void();
  }
  const int fd = socket.get();
  const int on = 1;
  setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  auto client = std::make_unique<Client>(std::move(socket), ++last_serial_);
  client->watched = EPOLLIN;
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) < 0) return;
  AddStranger(*client);
  clients_[fd] = std::move(client);
}

void MasterServer::AddStranger(const Client& client) {
  if (strangers_.size() >= kMaxStrangers) DropFirstStranger();
  strangers_.push_back({client.connection.fd(), client.serial, MonotonicSeconds() + patience_s_});
}

void MasterServer::DropFirstStranger() {
  const Stranger first = strangers_.front();
  strangers_.pop_front();
  const auto found = clients_.find(first.fd);
  if (found == clients_.end() || found->second->serial != first.serial) return;
  if (!found->second->has_spoken) Close(first.fd);
}

void MasterServer::Serve(int fd, uint32_t events) {
  const auto found = clients_.find(fd);
  if (found == clients_.end()) return;  // closed by an earlier event of this round
  Client& client = *found->second;
  if (client.is_due) return;  // its turn comes
  Connection& connection = client.connection;
  bool is_alive = true;
  if ((events & ~EPOLLOUT) != 0 && !connection.is_clogged()) is_alive = connection.Read();
  if (!is_alive || !TakeTurn(client)) return Close(fd);
  if (client.is_due) due_.emplace_back(fd, client.serial);
  Watch(client);
}

// Requests that found the output full go on as soon as it has room. False: this connection is to be
// closed.
bool MasterServer::TakeTurn(Client& client) {
  Connection& connection = client.connection;
  const double end_s = MonotonicSeconds() + kTurn_s;
  for (bool go_on = true; go_on;) {
    if (!Handle(client, end_s)) return false;
    go_on = connection.is_clogged() && !client.is_due;
    if (!connection.Flush()) return false;
    go_on = go_on && !connection.is_clogged();
  }
  return true;
}

// One turn for each of those whose last one was too short, in their order.
void MasterServer::ServeDue() {
  for (size_t left = std::min(due_.size(), kTurnsARound); left > 0; --left) {
    const auto [fd, serial] = due_.front();
    due_.pop_front();
    const auto found = clients_.find(fd);
    if (found == clients_.end() || found->second->serial != serial) continue;
    found->second->is_due = false;
    Serve(fd, 0);
  }
}

void MasterServer::Watch(Client& client) {
  const Connection& connection = client.connection;
  const uint32_t wanted = (connection.has_output() ? EPOLLOUT : 0u) |
                          (connection.is_clogged() || client.is_due ? 0u : EPOLLIN);
  if (wanted == client.watched) return;
  client.watched = wanted;
  epoll_event event{.events = wanted, .data = {.fd = connection.fd()}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.fd(), &event);
}

// Answers what has arrived as far as its turn lasts and the output has room. False: this connection
// is to be closed.
bool MasterServer::Handle(Client& client, double end_s) {
  while (!client.connection.is_clogged()) {
    const auto frame = client.connection.Next();
    if (!frame.ok()) return false;
    if (!frame.value()) return true;
    if (!Answer(client, *frame.value())) return false;
    client.is_due = MonotonicSeconds() >= end_s;
    if (client.is_due) return true;
  }
  return true;
}

bool MasterServer::Answer(Client& client, const FrameBuffer::Frame& frame) {
  client.has_spoken = true;
  const auto [type, body_bytes, request_id] = frame.header;
  DispatchContext context{MonotonicSeconds(), 0, 0};
  if (type == static_cast<uint8_t>(MessageType::kHello)) context.fresh_id = RandomId();
  std::vector<uint8_t>& out = client.connection.output();
  const size_t begin = BeginFrame(out);
  const Status status = Dispatch(core_, type, frame.body, context, out);
  if (context.node != 0) client.node = context.node;
  if (!status.ok()) return Refuse(client, status, begin, request_id);
  if (out.size() - begin - kFrameHeaderBytes > kFrameBodyMax) {
    const Status too_large(Code::kInvalidArgument,
                           "the answer would exceed 64 MiB; ask for fewer keys at once");
    return Refuse(client, too_large, begin, request_id);
  }
  if (request_id == 0) {
    out.resize(begin);
  } else {
    EndFrame(out, begin, type | kAnswer, request_id);
  }
  return true;
}

// Puts an error in the place of the answer that was begun. False: who does not speak our protocol
// must go.
bool MasterServer::Refuse(Client& client, const Status& why, size_t begin, uint64_t request_id) {
  std::vector<uint8_t>& out = client.connection.output();
  out.resize(begin + kFrameHeaderBytes);
  Encode(ErrorBody{static_cast<uint32_t>(why.code()), why.message()}, out);
  EndFrame(out, begin, kError, request_id);
  if (why.code() == Code::kInvalidArgument) {
    if (request_id == 0) out.resize(begin);  // nobody waits for it
    return true;
  }
  client.connection.Flush();
  return false;
}

void MasterServer::Close(int fd) {
  const NodeId node = clients_.at(fd)->node;
  clients_.erase(fd);
  if (node != 0) core_.NodeDisconnected(node, MonotonicSeconds());
}

}  // namespace mooncake::store
