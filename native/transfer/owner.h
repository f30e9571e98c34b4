// Owner: what an engine that lends memory knows, shared by its servers.
//
// Thread safety: `segments` by any thread; all else on the loop's thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <unordered_set>

#include "base/status.h"
#include "transfer/loop.h"
#include "transfer/protocol.h"
#include "transfer/segment_table.h"
#include "transfer/strangers.h"

namespace mooncake {

struct Owner {
  std::shared_ptr<Loop> loop;
  std::shared_ptr<Strangers> strangers;
  SegmentTable segments;
  std::unordered_set<uint64_t> barred;  // peer ids, for ever
  HelloReply greeting;

  // kFenced or kWrongPeer when the caller must not come in.
  Status Admit(const Hello& hello) const {
    if (barred.contains(hello.peer_id)) {
      return Status(Code::kFenced, "the owner of this memory has fenced this process");
    }
    if (hello.expected_engine_id != 0 && hello.expected_engine_id != greeting.engine_id) {
      return Status(Code::kWrongPeer, "another engine listens here now");
    }
    return Status::Ok();
  }

  Status NoSegment(uint64_t id) const {
    return Status(Code::kNotFound, "no segment " + std::to_string(id) + " here");
  }
};

}  // namespace mooncake
