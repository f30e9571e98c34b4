// Client: a process's use of the store. Blocking; every list is one question to the master.
//
// Thread safety: all methods may be called by any thread.
// Ownership: shares the engine; its readers and writers may outlive it.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "store/context.h"
#include "store/reader.h"
#include "store/writer.h"

namespace mooncake::store {

class Client {
 public:
  struct Options {
    std::string master;
    uint32_t replicas = 1;
    double timeout_s = 5;
  };
  struct PutItem {
    std::string key;
    uint64_t size_bytes = 0;
    uint64_t part_bytes = 0;
    uint32_t replicas = 0;  // 0: the client's own setting
  };
  // Of one started put: a writer; or none, and Ok when the key is there or being written.
  struct Started {
    std::unique_ptr<Writer> writer;
    Status status;
  };

  Client(std::shared_ptr<Engine> engine, const Options& options);
  ~Client() { Close(); }

  // kUnavailable when the master is away.
  Result<std::vector<Started>> StartPuts(std::span<const PutItem> items);

  // Stores each value, which lies in registered memory. For each: true, or false when the key was
  // there. The first error, after all others have ended.
  Result<std::vector<bool>> Put(std::span<const PutItem> items, std::span<const Range> values);

  // Leases what is there: all of `keys` that are, or only their leading run.
  Result<std::shared_ptr<Reader>> Open(std::vector<std::string> keys, bool stop_at_miss);

  Result<std::vector<bool>> Exists(std::vector<std::string> keys);
  Result<uint64_t> MatchPrefix(std::vector<std::string> keys);
  Result<std::vector<bool>> Remove(std::vector<std::string> keys);
  Result<Stats> Report();

  uint64_t epoch() const { return context_->session.epoch(); }
  const ReadCounters& counters() const { return context_->counters; }
  Engine& engine() { return context_->session.engine(); }
  void Close() { context_->session.Close(); }

 private:
  Result<PutStartReply> AskToPut(PutStart& question, Session::Identity& identity);
  Result<std::vector<Started>> Interpret(const PutStart& question, const PutStartReply& reply,
                                         const Session::Identity& identity) const;
  Status EndPuts(std::vector<Started>& puts);
  Result<std::vector<Reader::Item>> ItemsOf(LookupReply& reply, size_t count) const;
  void DropStaleSegments();

  const std::shared_ptr<Context> context_;
  const Options options_;
  std::atomic<uint64_t> segments_epoch_{0};
};

}  // namespace mooncake::store
