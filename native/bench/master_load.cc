#include "bench/master_load.h"

#include <time.h>

#include <algorithm>
#include <cstdio>

#include "base/check.h"

namespace mooncake {
namespace {

using store::PutEnd;
using store::PutOutcome;
using store::PutStart;

constexpr store::SessionId kSession = 1;
constexpr double kBatch_s = 1e-4;  // of the core's time

double Now(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + static_cast<double>(now.tv_nsec) * 1e-9;
}

// Adds what passes while it lives.
class Timed {
 public:
  explicit Timed(MasterLoadTime& time) : time_(time) {
    time_.wall_s -= Now(CLOCK_MONOTONIC);
    time_.cpu_s -= Now(CLOCK_THREAD_CPUTIME_ID);
  }
  ~Timed() {
    time_.cpu_s += Now(CLOCK_THREAD_CPUTIME_ID);
    time_.wall_s += Now(CLOCK_MONOTONIC);
  }

 private:
  MasterLoadTime& time_;
};

// A hash in hexadecimal, as block names are: neighbours have nothing in common.
void WriteKey(uint64_t number, char* out) {
  char text[MasterLoad::kKeyBytes + 1];
  std::snprintf(text, sizeof text, "block/%016llx/0",
                static_cast<unsigned long long>(number * 0x9e3779b97f4a7c15));
  std::copy(text, text + MasterLoad::kKeyBytes, out);
}

}  // namespace

MasterLoad::MasterLoad(const MasterLoadOptions& options) : options_(options), core_({1, 3, 5}) {
  const uint64_t extent = (store::kHeaderBytes + options.size_bytes + Allocator::kGranularity - 1) /
                          Allocator::kGranularity * Allocator::kGranularity;
  for (uint32_t node = 1; node <= options.nodes; ++node) {
    store::NodeRegister event;
    event.node = node;
    event.epoch = core_.epoch();
    event.endpoint = event.host_id = "10.0.0." + std::to_string(node) + ":1";
    event.capacity_bytes = options.room_objects / options.nodes * extent;
    MC_CHECK(core_.Step(event, now_s_).is_known, "node %u of %llu bytes", node,
             static_cast<unsigned long long>(event.capacity_bytes));
  }
  const store::Hello hello{kSession, 0, 1, "10.0.0.1"};
  MC_CHECK(core_.Step(hello, now_s_).ok(), "hello");
  starts_.session = ends_.session = kSession;
  starts_.options.resize(1);
}

MasterLoadTime MasterLoad::Put(uint64_t count) {
  MasterLoadTime time;
  while (count > 0) {
    const uint64_t batch = std::min<uint64_t>(count, options_.batch);
    MakeStarts(batch);
    while (!starts_.items.empty()) {
      now_s_ += kBatch_s;
      Start(time);
      End(time);
    }
    count -= batch;
  }
  return time;
}

void MasterLoad::MakeStarts(uint64_t count) {
  keys_.resize(count * kKeyBytes);
  for (uint64_t at = 0; at < count; ++at) {
    char* key = keys_.data() + at * kKeyBytes;
    WriteKey(++last_put_, key);
    PutStart::Item item;
    item.put_id = last_put_;
    item.key = {key, kKeyBytes};
    item.size_bytes = options_.size_bytes;
    starts_.items.push_back(item);
  }
}

// Leaves in `starts_` what is to be asked again, and in `ends_` what was started.
void MasterLoad::Start(MasterLoadTime& time) {
  const uint64_t checksums = store::ChunkCount(options_.size_bytes, 0);
  store::PutStartReply reply;
  {
    const Timed timed(time);
    reply = core_.Step(starts_, now_s_);
  }
  MC_CHECK(reply.items.size() == starts_.items.size(), "%zu answers", reply.items.size());
  std::vector<PutStart::Item> again;
  for (size_t at = 0; at < reply.items.size(); ++at) {
    const PutStart::Item& item = starts_.items[at];
    if (reply.items[at].outcome == PutOutcome::kStarted) {
      const uint64_t generation = reply.items[at].generation;
      ends_.items.push_back({item.put_id, item.key, generation, {}, {}, {}, checksums});
    } else if (reply.items[at].outcome == PutOutcome::kMakingRoom) {
      again.push_back(item);
    } else {
      ++time.refused;
    }
  }
  time.retries += again.size();
  starts_.items = std::move(again);
}

void MasterLoad::End(MasterLoadTime& time) {
  ends_.checksums.assign(ends_.items.size() * store::ChunkCount(options_.size_bytes, 0), 7);
  {
    const Timed timed(time);
    const store::PutEndReply reply = core_.Step(ends_, now_s_);
    time.put += std::count(reply.outcomes.begin(), reply.outcomes.end(), store::EndOutcome::kDone);
  }
  ends_.items.clear();
}

}  // namespace mooncake
