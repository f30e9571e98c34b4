#include "transfer/transports/tcp_route.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <cstdint>
#include <map>
#include <memory>
#include <utility>

namespace mooncake {
namespace {

// The bytes of a numeric host: 4 or 16; empty when it is none.
std::string Bytewise(const std::string& host) {
  const std::string bare = host.substr(0, host.find('%'));
  char bytes[16];
  if (inet_pton(AF_INET, bare.c_str(), bytes) == 1) return std::string(bytes, 4);
  if (inet_pton(AF_INET6, bare.c_str(), bytes) == 1) return std::string(bytes, 16);
  return {};
}

// The network part of an address, so that two addresses on one subnet give the same.
std::string Masked(std::string bytes, unsigned prefix) {
  for (size_t i = 0; i < bytes.size(); ++i) {
    const unsigned kept = std::clamp<int>(static_cast<int>(prefix) - static_cast<int>(8 * i), 0, 8);
    bytes[i] = static_cast<char>(static_cast<uint8_t>(bytes[i]) & (0xff00u >> kept));
  }
  return bytes;
}

struct Network {
  std::string address;
  unsigned prefix = 0;

  bool Contains(const std::string& bytes) const {
    return bytes.size() == address.size() && Masked(bytes, prefix) == Masked(address, prefix);
  }
  std::string Key() const {
    std::string key = Masked(address, prefix);
    key += static_cast<char>(prefix);
    return key;
  }
};

std::vector<Network> Parse(const std::vector<std::string>& texts) {
  std::vector<Network> networks;
  for (const std::string& text : texts) {
    const size_t slash = text.find('/');
    Network network{Bytewise(text.substr(0, slash)), 0};
    const char* end = text.data() + text.size();
    if (slash != std::string::npos) std::from_chars(text.data() + slash + 1, end, network.prefix);
    networks.push_back(std::move(network));
  }
  return networks;
}

// The network of this very address, else one that it lies in.
const Network* NetworkOf(const std::vector<Network>& networks, const std::string& host) {
  const std::string bytes = Bytewise(host);
  const Network* found = nullptr;
  for (const Network& network : networks) {
    if (bytes.empty() || !network.Contains(bytes)) continue;
    if (found == nullptr || network.address == bytes) found = &network;
  }
  return found;
}

struct Subnet {
  Network network;
  std::vector<std::string> locals;
  std::vector<Address> remotes;
};

bool IsWildcard(const std::string& bytes) {
  return !bytes.empty() && std::all_of(bytes.begin(), bytes.end(), [](char b) { return b == 0; });
}

bool IsLoopback(const std::string& bytes) {
  return bytes.size() == 4 ? bytes[0] == 127 : bytes == std::string(15, 0) + '\1';
}

unsigned PrefixOf(const sockaddr* mask) {
  const bool is_v4 = mask->sa_family == AF_INET;
  const void* bits =
      is_v4 ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in*>(mask)->sin_addr)
            : &reinterpret_cast<const sockaddr_in6*>(mask)->sin6_addr;
  unsigned prefix = 0;
  for (size_t i = 0; i < (is_v4 ? 4u : 16u); ++i) {
    prefix += static_cast<unsigned>(std::popcount(static_cast<const uint8_t*>(bits)[i]));
  }
  return prefix;
}

}  // namespace

std::vector<Route> PairAddresses(const std::vector<std::string>& locals,
                                 const std::vector<std::string>& networks,
                                 const std::vector<Address>& remotes) {
  std::map<std::string, Subnet> subnets;
  const std::vector<Network> parsed = Parse(networks);
  for (const std::string& local : locals) {
    const Network* network = NetworkOf(parsed, local);
    if (network == nullptr) continue;
    Subnet& subnet = subnets[network->Key()];
    subnet.network = *network;
    subnet.locals.push_back(local);
  }
  std::vector<Route> routes;
  for (const Address& remote : remotes) {
    const std::string bytes = Bytewise(remote.host);
    const auto found = std::find_if(subnets.begin(), subnets.end(), [&](const auto& entry) {
      return !bytes.empty() && entry.second.network.Contains(bytes);
    });
    if (found == subnets.end()) {
      routes.push_back({"", remote});
    } else {
      found->second.remotes.push_back(remote);
    }
  }
  for (const auto& [key, subnet] : subnets) {
    if (subnet.remotes.empty()) continue;
    for (size_t i = 0; i < std::max(subnet.locals.size(), subnet.remotes.size()); ++i) {
      routes.push_back(
          {subnet.locals[i % subnet.locals.size()], subnet.remotes[i % subnet.remotes.size()]});
    }
  }
  return routes;
}

std::vector<Address> Reachable(const std::vector<std::string>& endpoints, const Address& answered) {
  if (endpoints.size() < 2) return {answered};
  const bool is_local = IsLoopback(Bytewise(answered.host));
  std::vector<Address> reachable;
  bool is_named = false;
  for (const std::string& endpoint : endpoints) {
    auto address = ParseAddress(endpoint);
    if (!address.ok()) continue;
    const std::string bytes = Bytewise(address.value().host);
    const bool is_same = bytes == Bytewise(answered.host) && address.value().port == answered.port;
    const bool is_answered = is_same || (IsWildcard(bytes) && !is_named);
    const bool is_twice = !is_answered && bytes == Bytewise(answered.host);
    if (!is_answered && (bytes.empty() || IsWildcard(bytes) || is_twice)) continue;
    if (!is_answered && IsLoopback(bytes) && !is_local) continue;
    is_named = is_named || is_answered;
    reachable.push_back(is_answered ? answered : address.value());
  }
  if (!is_named) reachable.insert(reachable.begin(), answered);
  return reachable;
}

std::vector<std::string> ReadNetworks() {
  ifaddrs* all = nullptr;
  if (getifaddrs(&all) != 0) return {};
  const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> holder(all, &freeifaddrs);
  std::vector<std::string> networks;
  for (const ifaddrs* one = all; one != nullptr; one = one->ifa_next) {
    if (one->ifa_addr == nullptr || one->ifa_netmask == nullptr) continue;
    if ((one->ifa_flags & IFF_UP) == 0) continue;
    const int family = one->ifa_addr->sa_family;
    if (family != AF_INET && family != AF_INET6) continue;
    char host[NI_MAXHOST];
    const socklen_t size = family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6);
    if (getnameinfo(one->ifa_addr, size, host, sizeof host, nullptr, 0, NI_NUMERICHOST) != 0) {
      continue;
    }
    networks.push_back(std::string(host) + "/" + std::to_string(PrefixOf(one->ifa_netmask)));
  }
  return networks;
}

}  // namespace mooncake
