// PreparedTransfer: a batch that was checked once and is carried out as often as wanted.
//
// Thread safety: all methods may be called by any thread; it may be carried out by several at once.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "transfer/buffers.h"
#include "transfer/types.h"

namespace mooncake {

class RemoteSegment;

class PreparedTransfer : public std::enable_shared_from_this<PreparedTransfer> {
 public:
  PreparedTransfer(Op op, std::shared_ptr<RemoteSegment> remote, std::vector<Piece> pieces);

  Op op() const { return op_; }
  const std::shared_ptr<RemoteSegment>& remote() const { return remote_; }
  const std::shared_ptr<const std::vector<Piece>>& pieces() const { return pieces_; }
  size_t piece_count() const { return pieces_->size(); }
  uint64_t size_bytes() const { return size_bytes_; }

  // Where its local memory is, as long as registrations do not change.
  Result<BufferTable::Claim> Use(BufferTable& buffers) {
    return buffers.Use(op_, *pieces_, known_);
  }

 private:
  const Op op_;
  const std::shared_ptr<RemoteSegment> remote_;
  const std::shared_ptr<const std::vector<Piece>> pieces_;
  const uint64_t size_bytes_;
  BufferTable::SharedFootprint known_;  // guarded by the table
};

}  // namespace mooncake
