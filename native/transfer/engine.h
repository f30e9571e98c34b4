// Engine: moves batches of bytes between this process and segments of others, one-sided.
//
//   auto engine = Engine::Create({.listen = "127.0.0.1:0"});
//   auto segment = engine->CreateSegment(64 << 20);             // others may reach it
//   auto remote = engine->OpenSegment("10.0.0.2:7500", id, Deadline::After(1));
//   Status status = engine->Execute(Op::kWrite, *remote, pieces, Deadline::After(1));
//
// Thread safety: all methods may be called by any thread.
// Ownership: an Engine owns its threads; destroying it closes it. It belongs to the process that
// made it: a forked child must not use it, and may destroy it. Segments, remote segments and
// transfers are shared and may outlive it; they are then inert (kClosed). All of them know their
// shared_ptr (shared_from_this): else the bindings would make another one around the Python object,
// whose release takes the GIL on whatever thread it happens.
// Invariants: local memory is read or written only inside registered buffers and own segments, and
// only between the start and the end of a batch. A connection that saw an error is never used
// again.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/status.h"
#include "transfer/notifications.h"
#include "transfer/prepared.h"
#include "transfer/segment.h"
#include "transfer/transfer.h"
#include "transfer/types.h"
#include "transfer/view.h"

namespace mooncake {

class Core;
class Attachment;
class Peer;

// A segment of another engine (or of this one), opened under the peer id that this engine had then.
// After Rotate(), or after the owner fenced that id, its operations fail with kFenced, for ever.
class RemoteSegment : public std::enable_shared_from_this<RemoteSegment> {
 public:
  RemoteSegment(std::shared_ptr<Peer> peer, std::shared_ptr<Attachment> attachment);
  ~RemoteSegment();

  uint64_t id() const;
  uint64_t size_bytes() const;
  const std::string& endpoint() const;
  std::string_view transport() const;  // "shm" or "tcp"
  const std::string& reason() const;   // why that one: a sentence
  bool is_read_only() const;
  Attachment& attachment() const { return *attachment_; }

 private:
  std::shared_ptr<Peer> peer_;
  std::shared_ptr<Attachment> attachment_;
};

class Engine : public std::enable_shared_from_this<Engine> {
 public:
  // Listens and starts the threads. kInvalidArgument or kSystem, naming the address.
  static Result<std::shared_ptr<Engine>> Create(const EngineOptions& options);
  explicit Engine(std::shared_ptr<Core> core);
  ~Engine();
  Engine(const Engine&) = delete;
  Engine& operator=(const Engine&) = delete;

  std::string endpoint() const;  // host:port that is bound
  uint64_t peer_id() const;      // current; random, never 0
  uint64_t engine_id() const;    // random, for as long as it lives; what peers may ask for
  std::string host_id() const;   // equal iff two processes can share memory

  // Takes prefaulted memory and lets peers reach it. kOutOfSpace when there is not so much. A name
  // is one of this engine alone, of at most 255 bytes; empty: none. kAlreadyExists when it is
  // taken.
  Result<std::shared_ptr<Segment>> CreateSegment(uint64_t size_bytes, std::string name = "");
  // Lets peers reach memory that exists: those of this user on this host through the kernel
  // (process_vm_readv, process_vm_writev), where it permits that, others over TCP. Batches here may
  // use it as local memory. The caller keeps it in place until CloseSegment has given true. Where
  // Yama lets only ancestors look into a process, this process allows it to all of its user.
  Result<std::shared_ptr<Segment>> Lend(uint64_t address, uint64_t size_bytes,
                                        bool is_read_only = false, std::string name = "");
  // Peers cannot reach it any more: they get kNotFound. Waits for own batches that use it as local
  // memory. Peers that hold it are told to let go. Memory that was taken is freed with the last
  // reference here and the last mapping there, and this gives true at once. For memory that was
  // lent it waits until every peer has let go of it or is dead: true, or the deadline: false, and
  // the memory must stay; a later call waits on. After Close() it says how that ended.
  bool CloseSegment(const Segment& segment, Deadline deadline = Deadline::After(0));

  // Local memory of batches. Overlaps are fine and counted; register and unregister are paired by
  // (address, size, access). The caller keeps the memory alive in between.
  Status RegisterBuffer(uint64_t address, uint64_t size_bytes, Access access = Access::kBoth);
  // The same for memory of a GPU: batches copy it through host memory. Work on the GPU that a batch
  // depends on must have ended when the batch begins. kInvalidArgument when it is no such memory,
  // kSystem when there is no CUDA driver.
  Status RegisterDeviceBuffer(uint64_t address, uint64_t size_bytes, Access access = Access::kBoth);
  // Waits for batches that use it: afterwards nothing of the engine touches it.
  // kBufferNotRegistered when there is no such registration.
  Status UnregisterBuffer(uint64_t address, uint64_t size_bytes, Access access = Access::kBoth);

  // Connects to the engine at `endpoint` and opens its segment, by id or by name. kNotFound: it has
  // no such segment; kFenced: it has barred this engine's peer id; kWrongPeer: an engine other than
  // `engine_id`, if that is not 0, is there; kPeerUnreachable, kTimeout, kWire.
  Result<std::shared_ptr<RemoteSegment>> OpenSegment(const std::string& endpoint,
                                                     uint64_t segment_id, Deadline deadline,
                                                     uint64_t engine_id = 0);
  Result<std::shared_ptr<RemoteSegment>> OpenSegment(const std::string& endpoint,
                                                     const std::string& name, Deadline deadline,
                                                     uint64_t engine_id = 0);

  // `length` bytes from `offset` on, to be read in place; see view.h. The first view of a remote
  // segment asks its owner, until `deadline`; later ones cost no message. kInvalidArgument: the
  // range lies outside; kUnavailable: the memory is not mapped here, for it is reached over TCP or
  // lent by its owner, and has to be copied; else as Execute.
  Result<std::shared_ptr<View>> Map(const std::shared_ptr<RemoteSegment>& remote, uint64_t offset,
                                    uint64_t length, Deadline deadline);

  // Carries out a batch in the calling thread. Ok: every byte is where it should be; for writes the
  // owner's memory holds them, and its queue the notification. Else one error, which says whether
  // the target is dirty: kInvalidArgument (outside the remote segment, a notification that is too
  // long), kBufferNotRegistered (outside local memory) and kReadOnly (a write to what was lent for
  // reading) before anything has moved; kTimeout, kPeerUnreachable, kFenced, kNotFound (the segment
  // was closed), kClosed; kNotNotified, when all has moved but the owner's queue of notifications
  // is full.
  Status Execute(Op op, const std::shared_ptr<RemoteSegment>& remote, std::span<const Piece> pieces,
                 const BatchOptions& options, const Note& note = {});

  // The same on an io thread. Argument errors are reported here. Blocks while the queue is full, at
  // most until `deadline` (kTimeout). The local memory is in use until the transfer has ended.
  // `options.cancel` is the transfer's own. batch_queue.h says which goes when.
  Result<std::shared_ptr<Transfer>> Submit(Op op, std::shared_ptr<RemoteSegment> remote,
                                           std::vector<Piece> pieces, const BatchOptions& options,
                                           const Note& note = {});

  // A batch to be carried out many times, at less cost each. The same argument errors; local memory
  // that is unregistered later is kBufferNotRegistered then.
  Result<std::shared_ptr<PreparedTransfer>> Prepare(Op op, std::shared_ptr<RemoteSegment> remote,
                                                    std::span<const Piece> pieces);
  Status Execute(PreparedTransfer& prepared, const BatchOptions& options, const Note& note = {});
  Result<std::shared_ptr<Transfer>> Submit(PreparedTransfer& prepared, const BatchOptions& options,
                                           const Note& note = {});

  // What peers gave with their batches; see NotificationQueue.
  Result<std::vector<Notification>> TakeNotifications(size_t limit);
  Result<int> NotificationFd();

  // One entry a path to a peer, with what it has done since the engine was made: also under earlier
  // peer ids, and to peers that are gone (of these at most the last Ledger::kRows).
  std::vector<PathStatistics> Statistics() const;

  // Bars `peer_id` for ever, and waits until it can write none of this engine's memory and has no
  // views of it: its connections are closed and drained, its mappings unmapped or its process dead.
  // True when that is so; false when the deadline passed before: the bar stays, and a later call
  // waits on.
  Result<bool> Fence(uint64_t peer_id, Deadline deadline);

  // Ends everything that was opened under the current peer id: its batches fail with kFenced, its
  // mappings are unmapped and their owners told, those with views once these are gone. Gives the
  // new peer id.
  Result<uint64_t> Rotate();

  // kClosed after Close, and in a forked child.
  Status CheckOpen() const;

  // Ends everything; blocked callers return with kClosed. Any later call gives kClosed.
  void Close();

 private:
  std::shared_ptr<Core> core_;
};

}  // namespace mooncake
