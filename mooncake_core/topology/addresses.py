"""The addresses of each interface, from /proc/net, or from the kernel where that says too little.

IPv4 addresses are spread over two files: fib_trie has the addresses, route the interface of each
connected network. Of two interfaces in one network a recorded copy tells only by the GIDs of RDMA
devices which has which.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Iterator, Mapping, Sequence

from mooncake_core.topology.host import Route
from mooncake_core.topology.netlink import ipv4_addresses
from mooncake_core.topology.tree import Tree

Addresses = Mapping[str, tuple[str, ...]]
"""Interface -> its addresses with their prefix length."""
Owners = Mapping[ipaddress.IPv4Address | ipaddress.IPv6Address, str]
"""Address -> the interface that has it, as far as it is known from elsewhere."""

# Source: include/uapi/linux/if_addr.h.
_DADFAILED, _DEPRECATED, _TENTATIVE = 0x08, 0x20, 0x40


def read_addresses(tree: Tree, routes: Sequence[Route], owners: Owners) -> Addresses:
    """Return the addresses of all interfaces, IPv4 first."""
    live = ipv4_addresses() if tree.is_live else None
    found: dict[str, tuple[str, ...]] = {}
    for name, address in [*(_ipv4(tree, routes, owners) if live is None else live), *_ipv6(tree)]:
        found[name] = (*found.get(name, ()), address)
    return found


def _ipv4(tree: Tree, routes: Sequence[Route], owners: Owners) -> Iterator[tuple[str, str]]:
    networks = [
        (route.nic, ipaddress.IPv4Network(route.network))
        for route in routes
        if not route.gateway and ":" not in route.network
    ]
    for address in _local_ipv4(tree):
        if address.is_loopback:
            yield "lo", f"{address}/8"
            continue
        within = [(name, network) for name, network in networks if address in network]
        if not within:
            tree.problems.append(f"/proc/net/route: no route says whose address {address} is")
            continue
        network = max((network for _, network in within), key=lambda each: each.prefixlen)
        names = [name for name, same in within if same == network]
        yield _owner(tree, address, names, owners), f"{address}/{network.prefixlen}"


def _owner(tree: Tree, address: ipaddress.IPv4Address, names: Sequence[str], owners: Owners) -> str:
    owner = owners.get(address, "")
    if owner in names:
        return owner
    name, *others = dict.fromkeys(names)
    if others:
        told = ", ".join(others)
        tree.problems.append(f"/proc/net/route: {address} may be of {told} instead of {name}")
    return name


def _local_ipv4(tree: Tree) -> list[ipaddress.IPv4Address]:
    text = tree.text("proc/net/fib_trie") or ""
    local = re.findall(r"\|-- ([0-9.]+)\n\s+/32 host LOCAL", text)
    found = []
    # The main and the local table show the same ones.
    for address in dict.fromkeys(local):
        try:
            found.append(ipaddress.IPv4Address(address))
        except ValueError:
            tree.problems.append(f"/proc/net/fib_trie: {address[:40]!r} is no address")
    return found


def _ipv6(tree: Tree) -> list[tuple[str, str]]:
    preferred: list[tuple[str, str]] = []
    deprecated: list[tuple[str, str]] = []
    for line in (tree.text("proc/net/if_inet6") or "").splitlines():
        try:
            address, _, prefix, _, flags, name = line.split()
            bits = int(flags, 16)
            found = ipaddress.IPv6Interface((bytes.fromhex(address), int(prefix, 16)))
        except ValueError:
            tree.problems.append(f"/proc/net/if_inet6: {line[:60]!r} is no address")
            continue
        if bits & (_DADFAILED | _TENTATIVE):
            tree.problems.append(f"/proc/net/if_inet6: {found} of {name} is not usable yet")
            continue
        (deprecated if bits & _DEPRECATED else preferred).append((name, str(found)))
    return preferred + deprecated
