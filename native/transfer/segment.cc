#include "transfer/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/random.h"
#include "base/socket.h"
#include "transfer/memory_limit.h"
#include "transfer/protocol.h"

namespace mooncake {
namespace {

constexpr uint64_t kSizeMax = uint64_t{1} << 62;

std::string Mebibytes(uint64_t size_bytes) { return std::to_string(size_bytes >> 20) + " MiB"; }

Status CheckLimit(uint64_t size_bytes) {
  const MemoryLimit limit = ReadMemoryLimit();
  if (size_bytes <= limit.available_bytes) return Status::Ok();
  return Status(Code::kOutOfSpace, "a segment of " + std::to_string(size_bytes) + " bytes (" +
                                       Mebibytes(size_bytes) + "): only " +
                                       Mebibytes(limit.available_bytes) + " are left, by " +
                                       limit.source);
}

// Pages are allocated here and not at the first touch, where their lack would be a SIGBUS.
Status Allocate(const Fd& file, uint64_t size_bytes) {
  int result;
  do {
    result = fallocate(file.get(), 0, 0, static_cast<off_t>(size_bytes));
  } while (result != 0 && errno == EINTR);
  if (result != 0) {
    const Status error = SystemError("fallocate of " + std::to_string(size_bytes) + " bytes");
    const bool is_full = errno == ENOSPC || errno == ENOMEM || errno == EFBIG;
    return is_full ? Status(Code::kOutOfSpace, error.message()) : error;
  }
  const int seals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
  if (fcntl(file.get(), F_ADD_SEALS, seals) != 0) return SystemError("F_ADD_SEALS");
  return Status::Ok();
}

// A second descriptor of the file, for readers. The file's mode keeps them from opening it for
// writing through /proc, unless they are root.
Result<Fd> OpenReadOnly(const Fd& file) {
  const std::string path = "/proc/self/fd/" + std::to_string(file.get());
  Fd read_only(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!read_only.valid()) return SystemError("open " + path);
  if (fchmod(file.get(), 0400) != 0) return SystemError("fchmod of a segment");
  return read_only;
}

Status CheckName(const std::string& name) {
  if (name.size() <= kSegmentNameBytes) return Status::Ok();
  return Status(Code::kInvalidArgument, "a segment's name of " + std::to_string(name.size()) +
                                            " bytes; at most " + std::to_string(kSegmentNameBytes) +
                                            " are possible");
}

Status CheckSize(uint64_t size_bytes) {
  if (size_bytes > 0 && size_bytes <= kSizeMax) return Status::Ok();
  return Status(Code::kInvalidArgument,
                "a segment of " + std::to_string(size_bytes) + " bytes; at least 1 is needed");
}

// Lets the kernel look whether all pages belong to a mapping, some thousands at a time.
Status CheckMapped(uint64_t address, uint64_t size_bytes) {
  const auto page = static_cast<uint64_t>(sysconf(_SC_PAGESIZE));
  std::vector<unsigned char> residency(4096);
  bool is_mapped = address <= kSizeMax;
  for (uint64_t at = address / page * page; is_mapped && at < address + size_bytes;) {
    const uint64_t run = std::min(address + size_bytes - at, residency.size() * page);
    is_mapped = mincore(reinterpret_cast<void*>(at), run, residency.data()) == 0;
    at += run;
  }
  if (is_mapped) return Status::Ok();
  return Status(Code::kInvalidArgument, std::to_string(size_bytes) + " bytes at address " +
                                            std::to_string(address) +
                                            ": this process has no such memory");
}

// Where only a process's ancestors may look into it (Yama's ptrace_scope 1), the others of its user
// need its word. Elsewhere this does nothing.
void PermitAccess() { prctl(PR_SET_PTRACER, PR_SET_PTRACER_ANY, 0, 0, 0); }

}  // namespace

Result<std::shared_ptr<Segment>> Segment::Create(uint64_t size_bytes, std::string name) {
  MC_RETURN_IF_ERROR(CheckSize(size_bytes));
  MC_RETURN_IF_ERROR(CheckName(name));
  MC_RETURN_IF_ERROR(CheckLimit(size_bytes));
  Fd file(memfd_create("mooncake-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return SystemError("memfd_create");
  MC_RETURN_IF_ERROR(Allocate(file, size_bytes));
  auto read_only = OpenReadOnly(file);
  if (!read_only.ok()) return read_only.status();
  void* data =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.get(), 0);
  if (data == MAP_FAILED) return SystemError("mmap of a segment");
  return std::shared_ptr<Segment>(new Segment(size_bytes, std::move(name), std::move(file),
                                              std::move(read_only).value(),
                                              static_cast<uint8_t*>(data), false));
}

Result<std::shared_ptr<Segment>> Segment::Lend(uint64_t address, uint64_t size_bytes,
                                               bool is_read_only, std::string name) {
  MC_RETURN_IF_ERROR(CheckSize(size_bytes));
  MC_RETURN_IF_ERROR(CheckName(name));
  MC_RETURN_IF_ERROR(CheckMapped(address, size_bytes));
  PermitAccess();
  return std::shared_ptr<Segment>(new Segment(size_bytes, std::move(name), Fd(), Fd(),
                                              reinterpret_cast<uint8_t*>(address), is_read_only));
}

Segment::Segment(uint64_t size_bytes, std::string name, Fd writable, Fd read_only, uint8_t* data,
                 bool is_read_only)
    : id_(RandomId()),
      size_bytes_(size_bytes),
      name_(std::move(name)),
      writable_(std::move(writable)),
      read_only_(std::move(read_only)),
      data_(data),
      is_read_only_(is_read_only) {}

Segment::~Segment() {
  if (!is_lent()) munmap(data_, size_bytes_);
}

void Segment::AddUses(int count) const {
  const std::lock_guard lock(mutex_);
  uses_ += count;
  if (uses_ == 0) unused_.notify_all();
}

bool Segment::WaitUntilUnused(Deadline deadline) const {
  std::unique_lock lock(mutex_);
  return unused_.wait_until(lock, deadline.time(), [&] { return uses_ == 0; });
}

}  // namespace mooncake
