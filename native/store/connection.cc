#include "store/connection.h"

#include <span>

#include "base/socket.h"

namespace mooncake::store {
namespace {

constexpr size_t kKeptOutputBytes = 1u << 20;  // of an output that was sent

}  // namespace

bool Connection::Read() {
  const auto got = RecvSome(socket_, in_.Room());
  if (got.ok()) in_.Add(got.value());
  return got.ok();
}

bool Connection::Flush() {
  while (has_output()) {
    const auto sent = SendSome(socket_, std::span(out_).subspan(sent_));
    if (!sent.ok()) return false;
    if (sent.value() == 0) return true;
    sent_ += sent.value();
  }
  out_.clear();
  if (out_.capacity() > kKeptOutputBytes) out_ = {};
  sent_ = 0;
  return true;
}

}  // namespace mooncake::store
