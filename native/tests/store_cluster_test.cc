// A master, two nodes and several clients in one process, for the sanitizers: puts, reads,
// evictions and new peer ids all at once. A reader must never see bytes of another key.
#include <atomic>
#include <cstring>
#include <thread>

#include "base/check.h"
#include "base/random.h"
#include "store/client.h"
#include "store/master_server.h"
#include "store/node.h"
#include "store/registration.h"

namespace mooncake::store {
namespace {

constexpr uint64_t kValueBytes = 48 << 10;
constexpr int kKeys = 64;
constexpr int kRounds = 300;

template <typename T>
T Must(Result<T> result) {
  MC_CHECK(result.ok(), "%s", result.status().message().c_str());
  return std::move(result).value();
}

std::shared_ptr<Engine> NewEngine(SameHost same_host) {
  return Must(Engine::Create({.listen = "127.0.0.1:0", .same_host = same_host, .io_threads = 1}));
}

void Fill(std::vector<uint8_t>& value, int key) {
  for (size_t at = 0; at < value.size(); ++at) value[at] = static_cast<uint8_t>(at * 31 + key);
}

// True when the key was there and its bytes were right.
bool Get(Client& client, const std::string& name, int key) {
  const auto reader = Must(client.Open({name}, true));
  if (reader->LeadingCount() == 0) return false;
  std::vector<uint8_t> value(kValueBytes), expected(kValueBytes);
  const Registration registered(client.engine(), value.data(), value.size());
  MC_CHECK(registered.status().ok(), "register");
  const Range range{reinterpret_cast<uint64_t>(value.data()), value.size()};
  const Reader::Request request{0, 0, {&range, 1}};
  if (!Must(reader->Read({&request, 1}))[0]) return false;
  Fill(expected, key);
  MC_CHECK(value == expected, "%s has other bytes", name.c_str());
  return true;
}

void Put(Client& client, const std::string& name, int key) {
  std::vector<uint8_t> value(kValueBytes);
  Fill(value, key);
  const Registration registered(client.engine(), value.data(), value.size());
  const Client::PutItem item{name, kValueBytes};
  const Range range{reinterpret_cast<uint64_t>(value.data()), value.size()};
  // A put may fail when this client has just taken a new peer id; never with anything else.
  const std::span<const Range> memory(&range, 1);
  const Status status = client.Put({&item, 1}, {&memory, 1}, {}).items[0].status;
  MC_CHECK(status.ok() || status.code() == Code::kUnavailable, "%s", status.message().c_str());
}

void Work(const std::string& master, SameHost same_host, int seed, std::atomic<int>& hits) {
  Client client(NewEngine(same_host), {.master = master, .replicas = 1, .timeout_s = 10});
  uint32_t random = 1 + seed;
  for (int round = 0; round < kRounds; ++round) {
    random = random * 1664525 + 1013904223;
    const int key = static_cast<int>((random >> 16) % kKeys);
    const std::string name = "key-" + std::to_string(key);
    if (Get(client, name, key)) {
      ++hits;
    } else {
      Put(client, name, key);
    }
    if (round % 100 == 50 + seed) (void)client.engine().Rotate();
  }
}

void RunCluster(SameHost same_host) {
  auto server = Must(MasterServer::Start("127.0.0.1:0", {RandomId(), 10, 10}));
  std::vector<std::unique_ptr<Node>> nodes;
  for (int node = 0; node < 2; ++node) {
    const std::string name = "node-" + std::to_string(node);
    nodes.push_back(
        Must(Node::Start(NewEngine(same_host), {server->endpoint(), 1 << 20, name, name})));
  }
  const Deadline deadline = Deadline::After(30);
  while (nodes[0]->epoch() == 0 || nodes[1]->epoch() == 0) {
    MC_CHECK(!deadline.passed(), "the nodes do not come");
    std::this_thread::yield();
  }
  std::atomic<int> hits{0};
  std::vector<std::thread> workers;
  for (int worker = 0; worker < 3; ++worker) {
    workers.emplace_back(Work, server->endpoint(), same_host, worker, std::ref(hits));
  }
  for (auto& worker : workers) worker.join();
  // 2 MiB hold 42 of 64 keys, so that about two thirds of the lookups of a uniform key hit.
  MC_CHECK(hits > 3 * kRounds / 3, "%d hits", hits.load());
}

}  // namespace
}  // namespace mooncake::store

int main() {
  mooncake::store::RunCluster(mooncake::SameHost::kShm);
  mooncake::store::RunCluster(mooncake::SameHost::kNetwork);
}
