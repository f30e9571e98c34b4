// ShmTransport: reaches a peer on this host: it maps the peer's memory files, and has the kernel
// copy to and from memory that the peer lends.
//
// One Unix connection a peer. Descriptors come through it, and the owner's word that this process
// is fenced or that a segment is gone. Copies are made by the calling thread; the
// engine's CopyTeam helps with large ones.
//
// Thread safety: all methods may be called by any thread; OnReady on the loop's thread.
// Invariants: no memory of the peer is touched or stays mapped once Bye was said, or Release for
// that segment; Bye is said as soon as operations have ended for good, the last copy under way is
// done and the last view is gone.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <unordered_set>

#include "base/deadline.h"
#include "base/fd.h"
#include "base/patience.h"
#include "transfer/copy_team.h"
#include "transfer/loop.h"
#include "transfer/transports/process.h"
#include "transfer/transports/shm_counters.h"
#include "transfer/transports/transport.h"
#include "transfer/transports/window.h"
#include "transfer/unix_socket.h"

namespace mooncake {

class ShmAttachment;

class ShmTransport : public Transport,
                     public Watcher,
                     public std::enable_shared_from_this<ShmTransport> {
 public:
  // Connects to the abstract socket `name`. kFenced and kWrongPeer are what the owner said.
  static Result<std::shared_ptr<ShmTransport>> Connect(const std::string& name, const Hello& hello,
                                                       std::shared_ptr<Loop> loop,
                                                       std::shared_ptr<CopyTeam> copy_team,
                                                       Deadline deadline);

  Result<std::shared_ptr<Attachment>> Open(uint64_t segment_id, Deadline deadline) override;
  void End(const Status& reason) override;
  bool IsEnded() const override;
  void AppendStatistics(std::vector<PathStatistics>& statistics) const override;
  Status Notify(std::string_view data, const BatchOptions& options);
  void OnReady(uint64_t token, uint32_t events) override;

 private:
  friend class ShmAttachment;
  using Lock = std::unique_lock<std::mutex>;

  ShmTransport(Fd socket, std::shared_ptr<Loop> loop, std::shared_ptr<CopyTeam> copy_team);

  // A segment as the owner gave it.
  struct Given {
    OpenReply segment;
    std::unique_ptr<Window> window;
  };

  // What ShmAttachment needs around a copy: a window that stays open until Leave.
  Result<const Window*> Enter(ShmAttachment& attachment, Op op, Patience patience);
  Status Leave(ShmAttachment& attachment, Status status);
  // The same around a view.
  Result<const Window*> EnterView(ShmAttachment& attachment, Patience patience);
  void LeaveView(ShmAttachment& attachment);
  void LeaveViewLocked(ShmAttachment& attachment);
  Status LeaveLocked(ShmAttachment& attachment, Status status);
  // Hears at once what the owner has said; else the loop does, soon.
  void Listen();
  void Close(ShmAttachment& attachment);
  bool IsUsable(const ShmAttachment& attachment);
  bool is_interrupted() const { return is_interrupted_.load(std::memory_order_relaxed); }

  Result<Packet> Ask(Lock& lock, Message type, std::span<const uint8_t> body, Patience patience);
  Result<Given> Obtain(Lock& lock, const Map& map, Patience patience);
  Result<std::unique_ptr<Window>> OpenWindow(const MapReply& reply, const Fd& file,
                                             bool is_writable);
  Result<std::shared_ptr<Process>> Owner(uint64_t start_time);
  std::shared_ptr<ShmAttachment> Attach(uint64_t handle, uint64_t segment_id, Given given);
  Status EnsureViewed(Lock& lock, ShmAttachment& attachment, Patience patience);
  Status EnsureWritable(Lock& lock, ShmAttachment& attachment, Patience patience);
  void Release(uint64_t handle);
  bool Drain();
  void OnPacket(Packet packet);
  void OnSegmentGone(const Packet& packet);
  void EndLocked(const Status& reason);
  void Settle();
  void ReleaseAttachment(ShmAttachment& attachment);
  bool IsForked() const;

  const uint64_t fork_count_;  // of the process whose mappings these are
  const Fd socket_;
  const std::shared_ptr<Loop> loop_;
  const std::shared_ptr<CopyTeam> copy_team_;
  ShmCounters counters_;
  std::atomic<bool> is_interrupted_ = false;  // mirrors !end_.ok() for copies under way

  mutable std::mutex mutex_;  // guards all below, and the state of attachments
  std::condition_variable changed_;
  Status end_;
  bool is_connected_ = true;
  bool has_said_bye_ = false;
  int copies_ = 0;  // under way
  int views_ = 0;
  uint64_t last_request_id_ = 0;
  uint64_t last_handle_ = 0;
  std::unordered_map<uint64_t, Packet> answers_;
  std::unordered_set<uint64_t> asked_;  // request ids that somebody waits for
  std::unordered_set<ShmAttachment*> attachments_;
  int opens_ = 0;                      // under way; as long as there are any,
  std::unordered_set<uint64_t> gone_;  // segments that the owner closed meanwhile

  std::mutex owner_mutex_;          // guards owner_
  std::shared_ptr<Process> owner_;  // null until memory that was lent is opened
};

}  // namespace mooncake
