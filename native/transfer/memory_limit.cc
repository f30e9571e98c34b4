#include "transfer/memory_limit.h"

#include <fstream>
#include <optional>
#include <sstream>

namespace mooncake {
namespace {

std::optional<uint64_t> ReadNumber(const std::string& path) {
  std::ifstream file(path);
  uint64_t value;
  if (file >> value) return value;
  return std::nullopt;  // absent, or "max"
}

// The value of "key: 123 kB" in a file of such lines, or "key 123" in bytes.
std::optional<uint64_t> ReadField(const std::string& path, const std::string& key) {
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string name;
    std::string unit;
    uint64_t value;
    if (!(words >> name >> value) || name != key) continue;
    return words >> unit && unit == "kB" ? value * 1024 : value;
  }
  return std::nullopt;
}

std::string ControlGroup() {
  std::ifstream file("/proc/self/cgroup");
  std::string line;
  while (std::getline(file, line)) {
    if (line.starts_with("0::")) return line.substr(3);
  }
  return "";
}

void Tighten(MemoryLimit& limit, uint64_t available_bytes, const std::string& source) {
  if (available_bytes < limit.available_bytes) limit = {available_bytes, source};
}

void TightenByControlGroup(MemoryLimit& limit, const std::string& folder) {
  const auto most = ReadNumber(folder + "/memory.max");
  const auto used = ReadNumber(folder + "/memory.current");
  if (!most || !used) return;
  const uint64_t cache = ReadField(folder + "/memory.stat", "inactive_file").value_or(0);
  const uint64_t taken = *used - std::min(*used, cache);
  Tighten(limit, *most - std::min(*most, taken), folder + "/memory.max");
}

}  // namespace

MemoryLimit ReadMemoryLimit() {
  MemoryLimit limit;
  if (const auto available = ReadField("/proc/meminfo", "MemAvailable:")) {
    Tighten(limit, *available, "MemAvailable in /proc/meminfo");
  }
  std::string group = ControlGroup();
  while (!group.empty()) {
    TightenByControlGroup(limit, "/sys/fs/cgroup" + (group == "/" ? "" : group));
    group.resize(group == "/" ? 0 : std::max<size_t>(group.rfind('/'), group.size() > 1 ? 1 : 0));
    if (group.size() > 1 && group.back() == '/') group.pop_back();
  }
  return limit;
}

}  // namespace mooncake
