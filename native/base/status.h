// Status: the one error currency of the native code. No exception crosses a native API;
// the bindings translate a Status into one Python exception.
//
// Thread safety: values; safe to copy and move between threads.
#pragma once

#include <optional>
#include <string>
#include <utility>

namespace mooncake {

// One code a class of mooncake_core.errors; mooncake_core/native.py holds the map and a test
// proves it total. Never renumber: codes cross process boundaries.
enum class Code : int {
  kOk = 0,
  kInvalidArgument = 1,      // the caller's input is wrong; the message says what is right
  kWire = 2,                 // the peer sent something that is not our protocol
  kTimeout = 3,              // the deadline passed; remote state may be dirty
  kPeerUnreachable = 4,      // connect failed or the connection died
  kBufferNotRegistered = 5,  // an address outside every registered buffer
  kChecksumMismatch = 6,     // bytes read differ from the bytes committed
  kFenced = 7,               // this process's writes were revoked by the owner
  kOutOfSpace = 8,           // nothing evictable is left that would make room
  kLeaseExpired = 9,         // the lease ended before the read did
  kStaleEpoch = 10,          // the descriptor is of an earlier master
  kNotFound = 11,            // no such key or segment
  kAlreadyExists = 12,       // the key or name is taken
  kUnavailable = 13,         // no master or no node to serve this now; try again
  kSystem = 14,              // the operating system refused; the message has errno
  kClosed = 15,              // the object was closed
  kWrongPeer = 16,           // who answered is not who was asked for
  kCancelled = 17,           // its caller gave it up; remote state may be dirty
  kReadOnly = 18,            // the memory may be read, but not written
  kNotNotified = 19,         // every byte has landed; the peer took no notification
  kTooFewNodes = 20,         // not so many domains as copies that had to be
  kGroupGone = 21,           // another member of the object's group has gone meanwhile
};

class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}

  static Status Ok() { return {}; }

  bool ok() const { return code_ == Code::kOk; }
  Code code() const { return code_; }
  const std::string& message() const { return message_; }

  // True: memory of a peer that was to be written may hold anything, and may still be changing,
  // until its owner has fenced the writer. False: it is as it was.
  bool is_dirty() const { return is_dirty_; }
  Status AsDirty() && {
    is_dirty_ = !ok();
    return std::move(*this);
  }

  // The same, with `who` before the message unless that names it already.
  Status Of(const std::string& who) && {
    if (!ok() && message_.find(who) == std::string::npos) message_ = who + ": " + message_;
    return std::move(*this);
  }

 private:
  Code code_ = Code::kOk;
  bool is_dirty_ = false;
  std::string message_;
};

// A value or the reason why there is none.
// REQUIRES: value() is called only when ok().
template <typename T>
class [[nodiscard]] Result {
 public:
  Result(T value) : value_(std::move(value)) {}          // NOLINT: implicit by design
  Result(Status status) : status_(std::move(status)) {}  // NOLINT: implicit by design

  bool ok() const { return value_.has_value(); }
  const Status& status() const { return status_; }
  T& value() & { return *value_; }
  const T& value() const& { return *value_; }
  T&& value() && { return *std::move(value_); }

 private:
  std::optional<T> value_;
  Status status_;
};

#define MC_RETURN_IF_ERROR(expr)             \
  do {                                       \
    ::mooncake::Status mc_status_ = (expr);  \
    if (!mc_status_.ok()) return mc_status_; \
  } while (0)

}  // namespace mooncake
