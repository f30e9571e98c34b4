// ShmAttachment: one segment of a peer, mapped here: read-only at first, writable from the first
// write on.
//
// Thread safety: as Attachment. The state is guarded by the transport's mutex.
#pragma once

#include <memory>
#include <span>

#include "transfer/transports/mapping.h"
#include "transfer/transports/shm.h"
#include "transfer/transports/transport.h"

namespace mooncake {

class ShmAttachment : public Attachment {
 public:
  ShmAttachment(uint64_t segment_id, uint64_t size_bytes, uint64_t handle, Mapping readable,
                std::shared_ptr<ShmTransport> transport);
  ~ShmAttachment() override;

  std::string_view transport() const override { return "shm"; }
  bool IsUsable() const override;
  Status Execute(Op op, std::span<const Piece> pieces, const BatchOptions& options) override;

 private:
  friend class ShmTransport;

  Status Copy(Op op, uint8_t* segment, std::span<const Piece> pieces,
              const BatchOptions& options) const;

  const uint64_t handle_;
  const std::shared_ptr<ShmTransport> transport_;
  Mapping readable_;
  Mapping writable_;
  int copies_ = 0;        // under way
  bool is_gone_ = false;  // the owner closed the segment
};

}  // namespace mooncake
