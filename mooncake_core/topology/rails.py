"""Rails: the networks that NICs are in. NICs of one rail reach each other without a router. Pure.

A route between rails may exist and is not counted on: the usual cluster has one rail a card and
nothing between them.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Sequence
from itertools import combinations

from msgspec import Struct

from mooncake_core.topology.filters import EVERYTHING, Filter
from mooncake_core.topology.gids import Overrides, chosen_gid, interface_of
from mooncake_core.topology.host import Gid, Host, RdmaPort
from mooncake_core.topology.verdicts import usable_nics, usable_ports


class Rail(Struct, frozen=True, kw_only=True):
    """One network, and the usable NICs in it."""

    network: str
    """Such as 10.0.0.0/13; of InfiniBand the subnet prefix; an address alone, where its network is
    not known."""
    nics: tuple[str, ...]
    """RDMA ports and network interfaces."""


def find_rails(
    host: Host, chosen: Filter = EVERYTHING, overrides: Overrides | None = None
) -> tuple[Rail, ...]:
    """Return the rails, those of RDMA ports first."""
    found: dict[str, list[str]] = {}
    for network, name in [*_of_ports(host, chosen, overrides or {}), *_of_nics(host, chosen)]:
        found.setdefault(network, []).append(name)
    return tuple(Rail(network=network, nics=tuple(names)) for network, names in found.items())


def talking_pairs(rails: Sequence[Rail]) -> tuple[tuple[str, str], ...]:
    """Return the pairs of NICs that share a rail; each also reaches itself on another host."""
    pairs = (pair for rail in rails for pair in combinations(rail.nics, 2))
    return tuple(dict.fromkeys(pairs))


def _of_ports(host: Host, chosen: Filter, overrides: Overrides) -> Iterator[tuple[str, str]]:
    for port in usable_ports(host, chosen):
        yield _network(host, port, chosen_gid(host, port, overrides)), port.name


def _of_nics(host: Host, chosen: Filter) -> Iterator[tuple[str, str]]:
    for nic in usable_nics(host, chosen):
        for interface in nic.interfaces():
            if not interface.ip.is_link_local:
                yield str(interface.network), nic.name


def _network(host: Host, port: RdmaPort, gid: Gid) -> str:
    address = gid.address()
    if port.link_layer == "InfiniBand" and isinstance(address, ipaddress.IPv6Address):
        return f"InfiniBand {int(address) >> 64:016x}"
    interface = interface_of(host, gid)
    return str(interface.network) if interface else str(address or gid.gid)
