// Reader: leased objects that are being read, part by part, each verified.
//
// Thread safety: all methods may be called by any thread.
// Ownership: shares the client's context; holds the lease until it is closed.
// Invariants: true is returned only for bytes that were committed under the key: the payload is
// read, then the extent's header, whose generation must be the object's, and the checksums must be
// those of the commit. Reads that outlive the lease or the master's epoch are misses.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "store/context.h"

namespace mooncake::store {

class Reader {
 public:
  struct Request {
    uint64_t index = 0;         // of the object
    std::vector<Range> memory;  // overwritten, also when the read fails
  };

  // One of those that were found: what it is, and where.
  struct Item {
    bool found = false;
    uint64_t size_bytes = 0;
    uint64_t part_bytes = 0;
    uint64_t generation = 0;
    std::vector<ExtentAddress> copies;
    std::vector<uint32_t> checksums;
  };

  // `items` were found, in the order of `keys`, under `lease`, asked for at `asked_s`.
  Reader(std::shared_ptr<Context> context, const Session::Identity& owner, uint64_t lease,
         double asked_s, std::vector<std::string> keys, std::vector<Item> items);
  ~Reader() { Close(); }

  size_t count() const { return items_.size(); }
  const Item& item(size_t index) const { return items_[index]; }

  // Scatters part `part` of each object into its memory. False: a miss of at least one; nothing of
  // it is to be used. An error when the arguments are wrong.
  Result<bool> ReadPart(uint64_t part, std::span<const Request> requests);
  // The same with whole objects; says for each whether it is there.
  Result<std::vector<bool>> ReadAll(std::span<const Request> requests);

  // kStaleEpoch or kLeaseExpired when nothing can be read any more.
  Status Validity() const;
  void Close();

 private:
  struct Task {
    const Request* request;
    Section section;
    size_t copy = 0;  // the one to be tried
    bool is_done = false;
  };

  Result<Task> MakeTask(const Request& request, const Section& section) const;
  Status RunTasks(std::vector<Task>& tasks);
  Status RunOnNode(const ExtentAddress& node, std::span<Task*> tasks);
  Status Failed(const Status& status, uint64_t peer_id);
  bool Verify(const Task& task, const HeaderBytes& header);
  const ExtentAddress* CopyOf(const Task& task) const;

  const std::shared_ptr<Context> context_;
  const Session::Identity owner_;
  const uint64_t lease_;
  const std::vector<std::string> keys_;
  const std::vector<Item> items_;
  std::shared_ptr<LeaseClock> clock_;
  std::atomic<bool> is_closed_{false};
};

}  // namespace mooncake::store
