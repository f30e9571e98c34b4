// ShmAttachment: one segment of a peer, within reach of this process: for reading at first, for
// writing from the first write on.
//
// Thread safety: as Attachment. The windows and the count of copies are guarded by the transport's
// mutex; no window is closed while there are copies, nor readable_ while there are views.
#pragma once

#include <atomic>
#include <memory>
#include <span>

#include "transfer/transports/shm.h"
#include "transfer/transports/transport.h"
#include "transfer/transports/window.h"

namespace mooncake {

class ShmAttachment : public Attachment, public std::enable_shared_from_this<ShmAttachment> {
 public:
  ShmAttachment(const OpenReply& segment, uint64_t handle, std::unique_ptr<Window> readable,
                std::shared_ptr<ShmTransport> transport);
  ~ShmAttachment() override;

  std::string_view transport() const override { return "shm"; }
  bool IsUsable() const override;
  Status Execute(Op op, std::span<const Piece> pieces, const BatchOptions& options) override;
  Result<std::shared_ptr<View>> Map(uint64_t offset, uint64_t length, Patience patience) override;
  Status Notify(std::string_view data, const BatchOptions& options) override;

 private:
  friend class ShmTransport;

  Status Copy(Op op, const Window& window, std::span<const Piece> pieces,
              const BatchOptions& options, std::atomic<uint64_t>& moved) const;
  Status CheckStop(const BatchOptions& options) const;

  const uint64_t handle_;
  const std::shared_ptr<ShmTransport> transport_;
  std::unique_ptr<Window> readable_;  // null once the owner heard that it was given back
  std::unique_ptr<Window> writable_;
  int copies_ = 0;                     // under way
  int views_ = 0;                      // of readable_
  bool is_viewed_ = false;             // the owner was told that there may be views
  std::atomic<bool> is_gone_ = false;  // the owner closed the segment
};

}  // namespace mooncake
