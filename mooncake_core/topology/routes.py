"""The main routing table, from /proc/net/route and /proc/net/ipv6_route."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator

from mooncake_core.topology.host import Route
from mooncake_core.topology.tree import Tree

# Source: include/uapi/linux/route.h, ipv6_route.h.
_UP, _REJECT, _LOCAL = 0x0001, 0x0200, 0x80000000


def read_routes(tree: Tree) -> tuple[Route, ...]:
    """Return the routes that lead somewhere."""
    return (*_ipv4(tree), *_ipv6(tree))


def _ipv4(tree: Tree) -> Iterator[Route]:
    for line in (tree.text("proc/net/route") or "").splitlines()[1:]:
        try:
            name, target, gateway, flags, _, _, metric, mask, *_ = line.split()
            if int(flags, 16) & _REJECT or not int(flags, 16) & _UP:
                continue
            network = f"{_little_endian(target)}/{_little_endian(mask)}"
            yield Route(
                nic=name,
                network=str(ipaddress.IPv4Network(network)),
                gateway=str(_little_endian(gateway)) if int(gateway, 16) else "",
                metric=int(metric),
            )
        except ValueError:
            tree.problems.append(f"/proc/net/route: {line[:60]!r} is no route")


def _little_endian(hexadecimal: str) -> ipaddress.IPv4Address:
    return ipaddress.IPv4Address(bytes.fromhex(hexadecimal)[::-1])


def _ipv6(tree: Tree) -> Iterator[Route]:
    for line in (tree.text("proc/net/ipv6_route") or "").splitlines():
        try:
            target, prefix, _, _, gateway, metric, _, _, flags, name = line.split()
            network = ipaddress.IPv6Network((bytes.fromhex(target), int(prefix, 16)))
            bits = int(flags, 16)
            if bits & (_REJECT | _LOCAL) or not bits & _UP or network.is_multicast:
                continue
            yield Route(
                nic=name,
                network=str(network),
                gateway=str(_big_endian(gateway)) if int(gateway, 16) else "",
                metric=int(metric, 16),
            )
        except ValueError:
            tree.problems.append(f"/proc/net/ipv6_route: {line[:60]!r} is no route")


def _big_endian(hexadecimal: str) -> ipaddress.IPv6Address:
    return ipaddress.IPv6Address(bytes.fromhex(hexadecimal))
