// SocketPeer: the other end of SocketRate, in the process that owns the memory.
//
// Each connection opens with a StreamHeader; the peer faults its memory in and answers one byte.
// is_write: the client sends until it shuts down, and is told how many bytes came. Else: after one
// byte from the client the peer sends until the client closes.
//
// Thread safety: all methods may be called by any thread. It has a thread a connection.
#pragma once

#include <atomic>
#include <cstdint>
#include <list>
#include <memory>
#include <mutex>
#include <string>
#include <thread>

#include "base/fd.h"
#include "base/status.h"

namespace mooncake {

constexpr uint64_t kStreamMagic = 0x6d6f6f6e63616b65;
constexpr uint64_t kMaxSpanBytes = 1u << 30;
constexpr int kMaxStreams = 64;

struct StreamHeader {
  uint64_t magic;
  uint64_t is_write;
  uint64_t block_bytes;
  uint64_t span_bytes;
};

// Lets calls on `socket` wait, at most some seconds.
Status MakeBlocking(const Fd& socket);
// Sends exactly `size` bytes on a blocking socket.
Status SendBlock(const Fd& socket, const char* data, uint64_t size);

class SocketPeer {
 public:
  // Listens on host:port; kInvalidArgument or kSystem, naming it.
  static Result<std::unique_ptr<SocketPeer>> Create(const std::string& listen);
  SocketPeer(Fd listener, std::string endpoint);
  ~SocketPeer();
  SocketPeer(const SocketPeer&) = delete;
  SocketPeer& operator=(const SocketPeer&) = delete;

  const std::string& endpoint() const { return endpoint_; }
  // Ends every stream and waits for its thread. Idempotent.
  void Close();

 private:
  struct Stream {
    Fd socket;
    std::thread thread;
    std::atomic<bool> has_ended = false;
  };

  void Accept();
  void Start(Fd socket);
  void Reap();

  const Fd listener_;
  const std::string endpoint_;
  std::mutex mutex_;
  bool is_closed_ = false;
  std::list<Stream> streams_;
  std::thread accepting_;
};

}  // namespace mooncake
