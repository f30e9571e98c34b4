// What a transport is: one way to reach the memory of one peer.
//
// Variants: tcp.h, shm.h. Peer (peer.h) chooses between them when a segment is opened.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/deadline.h"
#include "base/patience.h"
#include "base/status.h"
#include "transfer/protocol.h"
#include "transfer/types.h"
#include "transfer/view.h"

namespace mooncake {

// One remote segment, attached over one transport.
//
// Thread safety: all methods may be called by any thread.
class Attachment {
 public:
  explicit Attachment(const OpenReply& segment) : segment_(segment) {}
  virtual ~Attachment() = default;
  Attachment(const Attachment&) = delete;
  Attachment& operator=(const Attachment&) = delete;

  uint64_t segment_id() const { return segment_.segment_id; }
  uint64_t size_bytes() const { return segment_.size_bytes; }
  bool is_read_only() const { return segment_.is_read_only; }

  // Why this transport was taken: a sentence.
  const std::string& reason() const { return reason_; }
  // REQUIRES: called once, before the attachment is shared.
  void Explain(std::string reason) { reason_ = std::move(reason); }

  virtual std::string_view transport() const = 0;

  // Moves a batch in the calling thread; see Engine::Execute. Local addresses are valid until it
  // returns, and not touched afterwards. An error of a write is dirty unless nothing was written.
  // REQUIRES: every piece lies inside the segment; there are as many checksums as pieces, or none.
  virtual Status Execute(Op op, std::span<const Piece> pieces, const BatchOptions& options) = 0;

  // See Engine::Map; the default says that there is no way to do it.
  // REQUIRES: the range lies inside the segment.
  virtual Result<std::shared_ptr<View>> Map(uint64_t offset, uint64_t length, Patience patience);

  // Gives the owner a notification, at most kNotificationBytes long; Ok: it is in its queue.
  // kNotNotified: the owner took it not.
  virtual Status Notify(std::string_view data, const BatchOptions& options) = 0;

  // False once operations can only fail.
  virtual bool IsUsable() const = 0;

 private:
  const OpenReply segment_;
  std::string reason_;
};

inline Result<std::shared_ptr<View>> Attachment::Map(uint64_t, uint64_t, Patience) {
  return Status(Code::kUnavailable,
                "there are no views of memory that is reached over " + std::string(transport()));
}

// Thread safety: all methods may be called by any thread.
class Transport {
 public:
  virtual ~Transport() = default;

  // kNotFound: the peer has no such segment.
  virtual Result<std::shared_ptr<Attachment>> Open(uint64_t segment_id, Deadline deadline) = 0;

  // Fails every later operation with `reason`, interrupts those under way and waits for them, then
  // gives the peer's memory back and tells it so. The first reason stays.
  virtual void End(const Status& reason) = 0;

  virtual bool IsEnded() const = 0;

  // One entry a path, without `peer`.
  virtual void AppendStatistics(std::vector<PathStatistics>& statistics) const = 0;
};

}  // namespace mooncake
