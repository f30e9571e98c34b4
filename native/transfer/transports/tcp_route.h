// Routes: which local address reaches which address of a peer.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/socket.h"

namespace mooncake {

// A path's two ends.
struct Route {
  std::string local;  // host; empty: the kernel chooses
  Address remote;     // numeric, but where it is the only one

  std::string ToString() const {
    if (local.empty()) return remote.ToString();
    std::string text = local;
    return text.append(" -> ").append(remote.ToString());
  }
};

// Pairs the addresses of both sides, each as often as needed so that all that share a subnet are
// used: with 2 here and 3 there, there are 3 routes. A remote address that shares a subnet with no
// local one is reached from where the kernel likes. Pure.
//
// `networks` are this host's, as address/prefix length; a local address that is on none of them
// shares no subnet.
std::vector<Route> PairAddresses(const std::vector<std::string>& locals,
                                 const std::vector<std::string>& networks,
                                 const std::vector<Address>& remotes);

// What a client tries: the addresses that the peer listens on, as it says itself, put right by the
// one that answered. One that means "every address" is replaced by it, one of a loopback interface
// is of no use unless it answered, and it comes first if the peer did not name it. Pure.
std::vector<Address> Reachable(const std::vector<std::string>& endpoints, const Address& answered);

// address/prefix length of every interface that is up.
std::vector<std::string> ReadNetworks();

}  // namespace mooncake
