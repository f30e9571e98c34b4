#include "bench/socket_peer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <utility>

#include "base/deadline.h"
#include "base/socket.h"
#include "bench/baseline.h"

namespace mooncake {
namespace {

constexpr timeval kSilence{10, 0};  // a stream on which nothing moves for so long is given up

uint64_t Receive(const Fd& socket, const StreamHeader& header, char* memory) {
  uint64_t total = 0;
  uint64_t offset = 0;
  for (;;) {
    const uint64_t size = std::min(header.block_bytes, header.span_bytes - offset);
    const ssize_t count = recv(socket.get(), memory + offset, size, 0);
    if (count <= 0) return total;
    total += static_cast<uint64_t>(count);
    offset += static_cast<uint64_t>(count);
    if (offset == header.span_bytes) offset = 0;
  }
}

void SendForEver(const Fd& socket, const StreamHeader& header, const char* memory) {
  uint64_t offset = 0;
  while (SendBlock(socket, memory + offset, header.block_bytes).ok()) {
    offset += header.block_bytes;
    if (offset >= header.span_bytes) offset = 0;
  }
}

void Serve(const Fd& socket) {
  StreamHeader header{};
  if (!MakeBlocking(socket).ok()) return;
  if (recv(socket.get(), &header, sizeof header, MSG_WAITALL) != sizeof header) return;
  const BaselineLoad load{1, header.block_bytes, header.span_bytes, 0};
  if (header.magic != kStreamMagic || !CheckLoad(load).ok()) return;
  auto memory = FaultedMemory::Take(header.span_bytes);
  uint8_t go = 1;
  if (!memory.ok() || send(socket.get(), &go, 1, MSG_NOSIGNAL) != 1) return;
  if (header.is_write != 0) {
    const uint64_t total = Receive(socket, header, memory.value().data());
    (void)send(socket.get(), &total, sizeof total, MSG_NOSIGNAL);
  } else if (recv(socket.get(), &go, 1, MSG_WAITALL) == 1) {
    SendForEver(socket, header, memory.value().data());
  }
}

}  // namespace

Status MakeBlocking(const Fd& socket) {
  const int flags = fcntl(socket.get(), F_GETFL);
  if (flags < 0 || fcntl(socket.get(), F_SETFL, flags & ~O_NONBLOCK) != 0) {
    return SystemError("fcntl");
  }
  setsockopt(socket.get(), SOL_SOCKET, SO_RCVTIMEO, &kSilence, sizeof kSilence);
  setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &kSilence, sizeof kSilence);
  return Status::Ok();
}

Status SendBlock(const Fd& socket, const char* data, uint64_t size) {
  while (size > 0) {
    const ssize_t count = send(socket.get(), data, size, MSG_NOSIGNAL);
    if (count <= 0) return SystemError("send");
    data += count;
    size -= static_cast<uint64_t>(count);
  }
  return Status::Ok();
}

Result<std::unique_ptr<SocketPeer>> SocketPeer::Create(const std::string& listen) {
  auto address = ParseAddress(listen);
  if (!address.ok()) return address.status();
  auto listener = ListenTcp(address.value());
  if (!listener.ok()) return listener.status();
  auto bound = LocalAddress(listener.value());
  if (!bound.ok()) return bound.status();
  return std::make_unique<SocketPeer>(std::move(listener).value(), bound.value().ToString());
}

SocketPeer::SocketPeer(Fd listener, std::string endpoint)
    : listener_(std::move(listener)), endpoint_(std::move(endpoint)) {
  accepting_ = std::thread([this] { Accept(); });
}

SocketPeer::~SocketPeer() { Close(); }

void SocketPeer::Accept() {
  for (;;) {
    auto ready = WaitFor(listener_, POLLIN, Deadline::After(3600));
    if (ready.ok() && (ready.value() & (POLLHUP | POLLERR)) != 0) return;
    Fd socket(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    if (socket.valid()) Start(std::move(socket));
  }
}

void SocketPeer::Start(Fd socket) {
  const std::lock_guard lock(mutex_);
  Reap();
  if (is_closed_ || streams_.size() >= kMaxStreams) return;
  Stream& stream = streams_.emplace_back();
  stream.socket = std::move(socket);
  stream.thread = std::thread([&stream] {
    Serve(stream.socket);
    shutdown(stream.socket.get(), SHUT_RDWR);
    stream.has_ended = true;
  });
}

// REQUIRES: mutex_ is held.
void SocketPeer::Reap() {
  for (auto one = streams_.begin(); one != streams_.end();) {
    if (!one->has_ended) {
      ++one;
      continue;
    }
    one->thread.join();
    one = streams_.erase(one);
  }
}

void SocketPeer::Close() {
  {
    const std::lock_guard lock(mutex_);
    if (std::exchange(is_closed_, true)) return;
    shutdown(listener_.get(), SHUT_RDWR);
    for (Stream& stream : streams_) shutdown(stream.socket.get(), SHUT_RDWR);
  }
  accepting_.join();
  for (Stream& stream : streams_) stream.thread.join();
  streams_.clear();
}

}  // namespace mooncake
