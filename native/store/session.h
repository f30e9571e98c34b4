// Session: a client's standing with the master: who it is, which leases it holds, and the heartbeat
// that keeps both alive, from a thread of its own, whatever the caller's threads do.
//
// Thread safety: all methods may be called by any thread.
// Ownership: shared by a client and its readers and writers; shares the engine.
// Invariants: a session has one peer id. When the engine has another one, or the master does not
// know the session, the next use says hello again: what the old session was writing is lost. After
// Close it goes on beating while there are pins, so that the end of each is heard; then it says
// goodbye.
#pragma once

#include <atomic>
#include <condition_variable>
#include <map>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "base/status.h"
#include "store/master_client.h"
#include "transfer/engine.h"

namespace mooncake::store {

// Until when a lease holds, as far as this process knows; never later than the master's own view.
struct LeaseClock {
  std::atomic<double> end_s{0};
  bool is_pin = false;
};

class Session {
 public:
  struct Identity {
    SessionId id = 0;
    uint64_t peer_id = 0;
    uint64_t epoch = 0;
    double client_ttl_s = 0;
    double lease_s = 0;
  };

  Session(std::shared_ptr<Engine> engine, std::string master, double timeout_s);
  ~Session();

  // The current identity; says hello when there is none that holds. kUnavailable, and kClosed after
  // Close.
  Result<Identity> Current();

  // The last known epoch; another one than before means that every descriptor is stale.
  uint64_t epoch() const { return epoch_.load(); }

  // The master does not know this session any more.
  void Forget(SessionId id);
  // The owner of some memory revoked this peer id: takes a new one, unless that was done.
  void Rotate(uint64_t peer_id);

  // A lease of session `id`; it has ended when that session is not the current one any more. A pin
  // is not renewed: it ends by Release.
  std::shared_ptr<LeaseClock> Hold(SessionId id, uint64_t lease, double end_s, bool is_pin = false);
  // The master hears of it with the next lookup, or within some 20 ms; of a pin, until it has.
  void Release(SessionId id, uint64_t lease);
  // What is to be said to have been released, by whoever says it: as much as a message takes.
  std::vector<uint64_t> TakeReleased(SessionId id);

  // While one lives a pin is being asked for, which Hold was not told of yet.
  class PinQuestion {
   public:
    explicit PinQuestion(Session& session);
    ~PinQuestion();
    PinQuestion(const PinQuestion&) = delete;
    PinQuestion& operator=(const PinQuestion&) = delete;

   private:
    Session& session_;
  };

  // A put whose end the master may not have heard of. Said by the heartbeat until it is heard.
  void AbortLater(SessionId id, PutAbort::Item put);

  // kClosed after Close, of this or of the engine.
  Status CheckOpen() const;
  MasterClient& master() { return master_; }
  Engine& engine() { return *engine_; }
  Deadline CallDeadline() const { return Deadline::After(timeout_s_); }
  double timeout_s() const { return timeout_s_; }
  uint64_t NextPutId() { return ++last_put_; }

  // Waits until the goodbye is said, unless there are pins.
  void Close();

 private:
  Status CheckOpenLocked() const;
  void EndLeases();
  void ReleaseAllButPins();
  bool IsOver() const;
  void SayGoodbye();
  Result<Identity> SayHello(Deadline deadline);  // one at a time
  Result<Identity> Introduce(Deadline deadline);
  void Run();
  Status Beat();
  std::vector<Heartbeat> Beats(SessionId id, double now_s) const;
  void ListPins(std::vector<Heartbeat>& beats) const;
  void Renew(std::span<const uint64_t> leases, std::span<const uint64_t> ended, double end_s);
  Deadline BeatDeadline(const Identity& identity, double share) const;
  void SendReleased();
  void SendAborts(const Identity& identity);
  Identity Snapshot() const;

  const std::shared_ptr<Engine> engine_;
  MasterClient master_;
  const double timeout_s_;
  std::atomic<uint64_t> epoch_{0};
  std::atomic<uint64_t> last_put_{0};

  mutable std::mutex mutex_;
  std::condition_variable hello_ended_;
  bool is_saying_hello_ = false;
  std::condition_variable closing_;
  bool is_closed_ = false;
  Identity identity_;
  std::map<uint64_t, std::shared_ptr<LeaseClock>> leases_;
  std::vector<uint64_t> released_;
  std::vector<uint64_t> released_pins_;  // that the master may not have heard of
  bool is_release_due_ = false;          // the thread will say it soon
  int pin_questions_ = 0;                // under way
  uint64_t last_lease_ = 0;              // that the master gave before its last heartbeat's answer
  std::vector<PutAbort::Item> aborts_;

  std::thread thread_;
};

}  // namespace mooncake::store
