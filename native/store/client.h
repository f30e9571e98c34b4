// Client: a process's use of the store. Blocking. A call with many keys asks the master in messages
// of at most kMaxBatch keys.
//
// Thread safety: all methods may be called by any thread; after Close they give kClosed.
// Ownership: shares the engine; its readers and writers may outlive it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "store/context.h"
#include "store/object_view.h"
#include "store/reader.h"
#include "store/writer.h"

namespace mooncake::store {

class Client {
 public:
  struct Options {
    std::string master;
    uint32_t replicas = 1;
    double timeout_s = 5;
    bool has_checksums = true;  // false: neither computes nor verifies any
  };
  // Views of the caller's memory.
  struct PutItem {
    std::string_view key{};
    uint64_t size_bytes = 0;
    uint64_t part_bytes = 0;
    std::string_view parent{};
    uint32_t depth = 0;
    std::string_view group{};
    uint32_t group_size = 0;
  };
  // How a put has gone.
  enum class Outcome : uint8_t {
    kStored = 0,       // of StartPuts: begun
    kExists = 1,       // it was there, or an upsert took the key meanwhile
    kBusy = 2,         // another put of it has not ended
    kNotAdmitted = 3,  // the admission policy did not want it
    kFailed = 4,       // the status says why
  };
  struct Started {
    Outcome outcome = Outcome::kFailed;
    Status status = {};
    std::unique_ptr<Writer> writer = {};  // if it was started
  };
  struct Puts {
    std::vector<Started> items;
    Space space;  // when one failed with kOutOfSpace
  };
  struct Done {
    Outcome outcome = Outcome::kFailed;
    Status status = {};
    uint32_t copies = 0;
  };
  struct PutResult {
    std::vector<Done> items;
    Space space;
  };
  struct WriteRequest {
    Writer* writer = nullptr;
    uint64_t offset = 0;
    std::span<const Range> memory = {};
  };

  Client(std::shared_ptr<Engine> engine, const Options& options);
  ~Client() { Close(); }

  // `options.replicas` 0: the client's own setting. kUnavailable when the master is away.
  Result<Puts> StartPuts(std::span<const PutItem> items, const PutOptions& options);

  // Stores each value, which lies in registered memory; items fail one by one. One that could not
  // be written on the nodes that were chosen is put on others. When the master is away, all that
  // was not put yet fails.
  PutResult Put(std::span<const PutItem> items, std::span<const std::span<const Range>> values,
                const PutOptions& options);

  // Ranges of several writers, with one batch a node. One status each.
  static std::vector<Status> Write(std::span<const WriteRequest> requests);
  // Commits writers of one client, with one question for up to kMaxBatch of them.
  std::vector<Status> Commit(std::span<Writer* const> writers);
  // Aborts what has not ended of these, with one question for up to kMaxBatch of them.
  void Abort(std::span<const Started> puts);

  // Leases what is there: all of `keys` that are, or only their leading run.
  Result<std::shared_ptr<Reader>> Open(const std::vector<std::string_view>& keys,
                                       bool stop_at_miss);
  // All of one object, in place where that is possible. Null: a miss.
  Result<std::shared_ptr<ObjectView>> OpenView(std::string_view key);

  Result<std::vector<bool>> Exists(std::span<const std::string_view> keys);
  Result<uint64_t> MatchPrefix(std::span<const std::string_view> keys);
  Result<std::vector<bool>> Remove(std::span<const std::string_view> keys);
  // False where the key is not there.
  Result<std::vector<bool>> SetPin(std::span<const std::string_view> keys, Pin pin,
                                   double soft_pin_s);
  // One message's answer each, in the order of `keys`.
  Result<std::vector<Objects>> Describe(std::span<const std::string_view> keys);
  Result<Objects> List(std::string_view prefix, uint64_t cursor, uint32_t limit);
  Result<Stats> Report();

  uint64_t epoch() const { return context_->session.epoch(); }
  const ReadCounters& counters() const { return context_->counters; }
  const std::shared_ptr<Context>& context() { return context_; }
  Engine& engine() { return context_->session.engine(); }
  void Close() { context_->session.Close(); }

 private:
  template <typename Reply, typename Request>
  Result<Reply> Ask(MessageType type, const Request& request);
  template <typename Reply>
  Result<std::vector<Reply>> AskOfKeys(MessageType type, std::span<const std::string_view> keys);
  template <typename Reply, typename Make>
  Status AskInSome(MessageType type, std::span<const std::string_view> keys, Make make,
                   std::vector<Reply>& replies);
  Result<std::vector<bool>> AskForFlags(MessageType type, std::span<const std::string_view> keys);

  // What is left to a put.
  struct Tries {
    int left = 0;
    Deadline deadline;
  };

  Result<PutStartReply> AskToPut(PutStart& question, Session::Identity& identity);
  Result<PutStartReply> AskUntilThereIsRoom(PutStart& question, Session::Identity& identity);
  Status SayReleased(const Session::Identity& identity);
  void AbortLater(const Session::Identity& identity, const PutStart& question);
  void AbortMaking(const Session::Identity& identity, const PutStart& question,
                   const PutStartReply& reply);
  Status StartSome(std::span<const PutItem> items, const PutOptions& options, Puts& puts);
  Status PutSome(std::span<const PutItem> items, std::span<const std::span<const Range>> values,
                 const PutOptions& options, const Tries& tries, PutResult& result);
  void WriteAndEnd(std::span<const std::span<const Range>> values, std::vector<Started>& puts);
  std::vector<Status> CommitSome(std::span<Writer* const> writers);
  enum class Hold { kAll, kLeading, kPinned };
  Result<std::shared_ptr<Reader>> OpenAs(std::span<const std::string_view> keys, Hold hold);
  Result<std::vector<Reader::Answer>> Lookup(std::span<const std::string_view> keys, Hold hold,
                                             const Session::Identity& identity);
  Status LookUpHalves(std::span<const std::string_view> keys, Hold hold,
                      const Session::Identity& identity, std::vector<Reader::Answer>& answers);
  void DropStaleSegments();

  const std::shared_ptr<Context> context_;
  const Options options_;
  std::atomic<uint64_t> segments_epoch_{0};
};

}  // namespace mooncake::store
