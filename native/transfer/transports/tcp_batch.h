// TcpBatch: one batch on one connection. Requests are sent while answers to earlier ones are
// received, so a batch of thousands of pieces is not thousands of round trips, and neither side
// waits for the other with full buffers.
//
// Thread safety: one thread. The socket, the pieces and the memory under them are the caller's.
#pragma once

#include <span>
#include <vector>

#include "base/deadline.h"
#include "base/fd.h"
#include "base/status.h"
#include "transfer/protocol.h"
#include "transfer/scatter.h"
#include "transfer/slicer.h"
#include "transfer/types.h"

namespace mooncake {

class TcpBatch {
 public:
  // `request_id` is the last one used on this connection; it is advanced.
  TcpBatch(const Fd& socket, Op op, uint64_t segment_id, std::span<const Piece> pieces,
           uint64_t& request_id);

  // Ok when every request was answered well.
  Status Run(const BatchOptions& options);

 private:
  enum class Stage { kHeader, kPayload, kError };

  bool ended() const { return to_receive_.done() && unanswered_ == 0; }
  bool CanSend() const { return !out_.done() || (!to_send_.done() && unanswered_ < kWindow); }
  Result<bool> Send();
  Result<bool> Receive();
  void StartRequest();
  Status OnReceived();
  Status OnHeader();
  void ExpectHeader();

  static constexpr int kWindow = 32;  // requests under way

  const Fd& socket_;
  const Op op_;
  const uint64_t segment_id_;
  uint64_t& request_id_;
  uint64_t answered_id_;
  Slicer to_send_;
  Slicer to_receive_;
  int unanswered_ = 0;

  std::vector<Piece> request_;
  Bytes head_;  // of the request that is being sent
  Scatter out_;

  Stage stage_ = Stage::kHeader;
  FrameHeaderBytes header_;
  Bytes error_;
  std::vector<Piece> answer_;
  Scatter in_;
};

}  // namespace mooncake
