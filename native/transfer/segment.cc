#include "transfer/segment.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <string>

#include "base/random.h"
#include "base/socket.h"
#include "transfer/memory_limit.h"

namespace mooncake {
namespace {

Status CheckLimit(uint64_t size_bytes) {
  const MemoryLimit limit = ReadMemoryLimit();
  if (size_bytes <= limit.available_bytes) return Status::Ok();
  return Status(Code::kOutOfSpace, "a segment of " + std::to_string(size_bytes) + " bytes: only " +
                                       std::to_string(limit.available_bytes) + " are left, by " +
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

}  // namespace

Result<std::shared_ptr<Segment>> Segment::Create(uint64_t size_bytes) {
  if (size_bytes == 0 || size_bytes > uint64_t{1} << 62) {
    return Status(Code::kInvalidArgument,
                  "a segment of " + std::to_string(size_bytes) + " bytes; at least 1 is needed");
  }
  MC_RETURN_IF_ERROR(CheckLimit(size_bytes));
  Fd file(memfd_create("mooncake-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!file.valid()) return SystemError("memfd_create");
  MC_RETURN_IF_ERROR(Allocate(file, size_bytes));
  auto read_only = OpenReadOnly(file);
  if (!read_only.ok()) return read_only.status();
  void* data =
      mmap(nullptr, size_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file.get(), 0);
  if (data == MAP_FAILED) return SystemError("mmap of a segment");
  return std::shared_ptr<Segment>(new Segment(
      size_bytes, std::move(file), std::move(read_only).value(), static_cast<uint8_t*>(data)));
}

Segment::Segment(uint64_t size_bytes, Fd writable, Fd read_only, uint8_t* data)
    : id_(RandomId()),
      size_bytes_(size_bytes),
      writable_(std::move(writable)),
      read_only_(std::move(read_only)),
      data_(data) {}

Segment::~Segment() { munmap(data_, size_bytes_); }

}  // namespace mooncake
