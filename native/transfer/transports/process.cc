#include "transfer/transports/process.h"

#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>
#include <string>

#include "base/socket.h"
#include "transfer/unix_socket.h"

namespace mooncake {
namespace {

std::string Name(pid_t pid) { return "process " + std::to_string(pid); }

// Takes `count` bytes off the front.
void Advance(std::span<iovec>& runs, uint64_t count) {
  while (!runs.empty() && count >= runs.front().iov_len) {
    count -= runs.front().iov_len;
    runs = runs.subspan(1);
  }
  if (count == 0) return;
  iovec& first = runs.front();
  first = {static_cast<uint8_t*>(first.iov_base) + count, first.iov_len - count};
}

}  // namespace

Result<uint64_t> StartTime(pid_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const size_t name_end = text.rfind(')');  // the name may hold anything
  if (name_end == std::string::npos) return Status(Code::kSystem, Name(pid) + " has no state");
  std::istringstream fields(text.substr(name_end + 1));
  std::string skipped;
  for (int field = 3; field < 22; ++field) fields >> skipped;
  uint64_t start_time = 0;
  fields >> start_time;
  if (!fields) return Status(Code::kSystem, Name(pid) + " has no start time");
  return start_time;
}

Result<std::shared_ptr<Process>> Process::Behind(const Fd& socket, uint64_t start_time) {
  auto peer = PeerCredentials(socket);
  if (!peer.ok()) return peer.status();
  auto& [pid, uid, pidfd] = peer.value();
  if (pid == 0) return Status(Code::kSystem, "the owner's process has no number here");
  if (uid != geteuid()) return Status(Code::kSystem, Name(pid) + " is another user's");
  auto started = StartTime(pid);
  if (!started.ok()) return started.status();
  if (started.value() != start_time) {
    return Status(Code::kSystem, Name(pid) +
                                     " is not the one that lent the memory: it started at " +
                                     std::to_string(started.value()) + ", not at " +
                                     std::to_string(start_time) + " ticks");
  }
  std::shared_ptr<Process> process(new Process(pid, std::move(pidfd), socket));
  MC_RETURN_IF_ERROR(process->CheckAlive());  // so the number was its own until now
  return process;
}

Status Process::CheckAlive() const {
  pollfd ends[2] = {{pidfd_.get(), POLLIN, 0}, {socket_.get(), POLLRDHUP, 0}};
  return PollNow(ends) == 0 ? Status::Ok() : Gone();
}

Status Process::Gone() const {
  return Status(Code::kPeerUnreachable, Name(pid_) + ", which lent the memory, is gone");
}

Status Process::Move(Op op, std::span<iovec> local, std::span<iovec> remote,
                     uint64_t& moved) const {
  const auto call = op == Op::kRead ? process_vm_readv : process_vm_writev;
  while (!local.empty()) {
    MC_RETURN_IF_ERROR(CheckAlive());
    const ssize_t count = call(pid_, local.data(), local.size(), remote.data(), remote.size(), 0);
    const int error = errno;
    if (count > 0) {
      moved += static_cast<uint64_t>(count);
      Advance(local, static_cast<uint64_t>(count));
      Advance(remote, static_cast<uint64_t>(count));
    }
    MC_RETURN_IF_ERROR(CheckAlive());
    if (count > 0 || error == EINTR) continue;
    if (error == ESRCH) return Gone();  // it is dying: its memory goes before its pidfd tells
    if (count == 0 || error == EFAULT) {
      return Status(Code::kNotFound, Name(pid_) + " has lent memory that is not there any more");
    }
    return Status(Code::kSystem, "the kernel gives no access to the memory of " + Name(pid_) +
                                     ": " + std::strerror(error));
  }
  return Status::Ok();
}

}  // namespace mooncake
