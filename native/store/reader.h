// Reader: leased objects that are being read, range by range, each verified.
//
// Thread safety: all methods may be called by any thread.
// Ownership: shares the client's context; holds the leases until it is closed.
// Invariants: true is returned only for bytes that were committed under the key: each chunk that
// they touch had the checksum of the commit (unless the object has none, or this client checks
// none), each extent's header was the object's, and the lease held until all had been read, so that
// no extent was used again meanwhile. Reads that outlive the lease or the master's epoch are
// misses.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "store/context.h"
#include "store/haul.h"
#include "store/own_keys.h"
#include "store/read_round.h"

namespace mooncake::store {

class Reader {
 public:
  // Bytes of one object from `offset` on, as many as the memory has; it is overwritten, also when
  // the read fails.
  struct Request {
    uint64_t index = 0;  // of the object
    uint64_t offset = 0;
    std::span<const Range> memory = {};
  };

  // One of those that were looked up: what it is, and where.
  struct Item {
    bool found = false;
    bool has_checksums = false;
    Shape shape = {};
    uint64_t generation = 0;
    uint32_t answer = 0;  // which brought it
    uint32_t copies = 0;
    std::span<const Placement> extents = {};  // copy by copy, of each its stripes in order
    std::span<const uint32_t> checksums = {};
  };
  // What the master answered to one question, and when that was asked.
  struct Answer {
    LookupReply reply = {};
    double asked_s = 0;
    bool is_pin = false;
    std::shared_ptr<LeaseClock> clock = {};  // set by the reader
  };

  // `answers` describe `keys`, in order; some keys at the end may be left out. kWire when an answer
  // describes what cannot be.
  static Result<std::shared_ptr<Reader>> Make(std::shared_ptr<Context> context,
                                              const Session::Identity& owner,
                                              std::span<const std::string_view> keys,
                                              std::vector<Answer> answers);
  ~Reader() { Close(); }

  size_t count() const { return items_.size(); }
  const Item& item(size_t index) const { return items_[index]; }
  // The leading run of those that were found.
  size_t LeadingCount() const;

  // Scatters each request's bytes into its memory. For each: false is a miss; nothing of its memory
  // is to be used. An error when the arguments are wrong, or this, the client or the engine closed.
  Result<std::vector<bool>> Read(std::span<const Request> requests);
  // Part `part` of several objects; the lengths sum up to its size. False when one misses.
  Result<bool> ReadPart(uint64_t part, std::span<const Request> requests);

  // kClosed, kStaleEpoch or kLeaseExpired when nothing can be read any more.
  Status Validity() const;
  void Close();

  // For views: where the whole object lies in one run of one node's memory.
  const NodeAddress& NodeOf(const Item& item, const Placement& extent) const {
    return answers_[item.answer].reply.nodes[extent.node];
  }
  // What the header of each extent has to be.
  ObjectHeader HeaderOf(size_t index, uint64_t stripe) const;
  // Says that what one node holds of an object is wrong, unless that was lawful.
  void ReportCorrupt(size_t index, NodeId node);

 private:
  struct Task;

  Reader(std::shared_ptr<Context> context, const Session::Identity& owner,
         std::span<const std::string_view> keys, std::vector<Answer> answers);
  Status TakeItems();
  Status TakeAnswer(uint32_t number, size_t& key);
  Status CheckRequest(const Request& request) const;
  Status RunTasks(std::vector<Task>& tasks);
  Status Settle(Task& task, const ReadRound::Outcome& outcome, double now_s);
  uint32_t FirstCopy(const Item& item) const;
  Status CheckOpen() const;
  Status ValidityOf(const Item& item, double now_s) const;
  Status ClockValidity(const LeaseClock* clock, double now_s) const;

  const std::shared_ptr<Context> context_;
  const Session::Identity owner_;
  const OwnKeys keys_;
  std::vector<Answer> answers_;
  std::vector<Item> items_;
  std::atomic<bool> is_closed_{false};
};

}  // namespace mooncake::store
