"""Which GID of a port to use. Pure.

RoCE, in this order: v2 before v1, since only v2 is routed; an address that is configured on an
interface of this namespace now; global, unique-local or IPv4 before link-local; the peer's subnet;
the lowest index. Private IPv4 (10/8, 172.16/12, 192.168/16, 100.64/10) is an address like any
other: data centres are made of it. InfiniBand: index 0, whose upper half must be the peer's subnet
prefix.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping

from msgspec import Struct

from mooncake_core.errors import ConfigError, UsageError
from mooncake_core.topology.filters import device_names, nearest
from mooncake_core.topology.host import Gid, Host, Interface, IpAddress, RdmaPort

Overrides = Mapping[str, int]
"""Device (mlx5_0) or port (mlx5_0/1) -> the GID index that the user wants."""


class RankedGid(Struct, frozen=True, kw_only=True):
    """A GID, and what speaks for and against it; the first of a list is used."""

    port: str
    index: int
    address: str
    kind: str
    nic: str
    reasons: tuple[str, ...]
    is_override: bool = False
    warnings: tuple[str, ...] = ()


def rank_gids(
    host: Host, port: RdmaPort, *, peer: str = "", overrides: Overrides | None = None
) -> tuple[RankedGid, ...]:
    """Return the set GIDs of a port, best first.

    Args:
        host: that has the port.
        port: whose GIDs are ranked.
        peer: an address or GID of the peer, whose subnet is preferred; empty: none.
        overrides: checked by parse_overrides.
    """
    other = _peer(peer)
    ranked = [_ranked(host, port, gid, other) for gid in _sorted(host, port, other)]
    wanted = _wanted(port, overrides or {})
    chosen = [_overridden(host, port, gid) for gid in port.gids if gid.index == wanted]
    return (*chosen, *(each for each in ranked if each.index != wanted))


def best_gid(host: Host, port: RdmaPort) -> Gid:
    """Return the GID that is used without a peer or an override.

    REQUIRES: the port has GIDs.
    """
    return _sorted(host, port, None)[0]


def chosen_gid(host: Host, port: RdmaPort, overrides: Overrides) -> Gid:
    """Return the GID that the user wants for a port, else the best; as best_gid."""
    wanted = _wanted(port, overrides)
    return next((gid for gid in port.gids if gid.index == wanted), None) or best_gid(host, port)


def parse_overrides(host: Host, text: str, *, key: str = "--gid") -> Overrides:
    """Return what "mlx5_0=3,mlx5_1/1=1" says; empty text says nothing.

    Raises:
        ConfigError: "key: device: problem"; no such device, or no GID of that index is set.
    """
    found = {}
    for part in filter(None, (part.strip() for part in text.split(","))):
        name, _, index = part.partition("=")
        if not (index.isascii() and index.isdigit() and len(index) <= 6):
            raise UsageError(f"{key}: {part}: not device=index, such as mlx5_0=3")
        ports = [port for port in host.rdma if name in (port.device, port.name)]
        if not ports:
            known = [each for each in device_names(host) if host.nic(each) is None]
            raise ConfigError(f"{key}: {name}: no such RDMA device; {nearest(name, known)}")
        for port in ports:
            known_indexes = [gid.index for gid in port.gids]
            if int(index) not in known_indexes:
                told = ", ".join(map(str, known_indexes)) or "none"
                raise ConfigError(f"{key}: {name}: GID {index} is not set; set are: {told}")
        found[name] = int(index)
    return found


def interface_of(host: Host, gid: Gid) -> Interface | None:
    """Return the GID's address with its network, as it is configured here; None: it is not."""
    nic = host.nic(gid.nic)
    candidates = (nic,) if nic else host.nics if not gid.nic else ()
    address = gid.address()
    for each in candidates:
        for interface in each.interfaces():
            if interface.ip == address:
                return interface
    return None


def is_here(host: Host, gid: Gid) -> bool:
    """Whether the GID's address is configured on its interface, in this namespace, now."""
    return interface_of(host, gid) is not None


def is_link_local(gid: Gid) -> bool:
    """Whether the GID reaches its own link alone."""
    address = gid.address()
    return address is not None and address.is_link_local


def _wanted(port: RdmaPort, overrides: Overrides) -> int | None:
    return overrides.get(port.name, overrides.get(port.device))


def _peer(text: str) -> IpAddress | None:
    if not text:
        return None
    try:
        address = ipaddress.ip_address(text)
    except ValueError as error:
        raise UsageError(f"{text!r} is no address or GID of a peer") from error
    return (address.ipv4_mapped or address) if address.version == 6 else address


def _sorted(host: Host, port: RdmaPort, peer: IpAddress | None) -> list[Gid]:
    if port.link_layer == "InfiniBand":
        return sorted(port.gids, key=lambda gid: gid.index)
    return sorted(
        port.gids,
        key=lambda gid: (
            _version_rank(gid),
            gid.address() is None,
            not is_here(host, gid),
            is_link_local(gid),
            not _shares_subnet(host, gid, peer),
            gid.index,
        ),
    )


def _version_rank(gid: Gid) -> int:
    """A kernel that does not tell stands between the two."""
    return 0 if "v2" in gid.kind else 2 if "v1" in gid.kind else 1


def _shares_subnet(host: Host, gid: Gid, peer: IpAddress | None) -> bool:
    if peer is None:
        return False
    own = interface_of(host, gid)
    if own is None:
        address = gid.address()
        if not isinstance(address, ipaddress.IPv6Address):
            return False
        own = ipaddress.IPv6Interface((address, 64))
    return own.version == peer.version and peer in own.network


def _ranked(host: Host, port: RdmaPort, gid: Gid, peer: IpAddress | None) -> RankedGid:
    is_infiniband = port.link_layer == "InfiniBand"
    reasons = _infiniband_reasons(gid, peer) if is_infiniband else _reasons(host, gid, peer)
    return RankedGid(
        port=port.name,
        index=gid.index,
        address=str(gid.address() or gid.gid),
        kind=gid.kind,
        nic=gid.nic,
        reasons=reasons,
    )


def _infiniband_reasons(gid: Gid, peer: IpAddress | None) -> tuple[str, ...]:
    address = gid.address()
    prefix = "not told" if address is None else f"{int(address) >> 64:016x}"
    reasons = ["index 0" if gid.index == 0 else "not index 0", f"subnet prefix {prefix}"]
    if isinstance(peer, ipaddress.IPv6Address) and address is not None:
        same = int(peer) >> 64 == int(address) >> 64
        reasons.append("the peer's subnet prefix" if same else "not the peer's subnet prefix")
    return tuple(reasons)


def _reasons(host: Host, gid: Gid, peer: IpAddress | None) -> tuple[str, ...]:
    address = gid.address()
    reasons = [gid.kind or "RoCE version not told"]
    if address is None:
        return (*reasons, "no address")
    if is_here(host, gid):
        reasons.append(f"configured on {gid.nic or 'an interface'}")
    else:
        reasons.append(_why_not_here(host, gid))
    reasons.append("link-local" if is_link_local(gid) else f"routable IPv{address.version}")
    if peer is not None:
        is_same = _shares_subnet(host, gid, peer)
        reasons.append("the peer's subnet" if is_same else "not the peer's subnet")
    return tuple(reasons)


def _why_not_here(host: Host, gid: Gid) -> str:
    if not gid.nic:
        return "its interface is not told, and no interface here has its address"
    if host.nic(gid.nic) is None:
        return f"its interface {gid.nic} is not in this network namespace"
    return f"{gid.nic} does not have this address now"


def _overridden(host: Host, port: RdmaPort, gid: Gid) -> RankedGid:
    ranked = _ranked(host, port, gid, None)
    warnings: tuple[str, ...] = ()
    if port.link_layer == "Ethernet" and not is_here(host, gid):
        warnings = (f"{port.name}: GID {gid.index} is used as told: {_why_not_here(host, gid)}",)
    return RankedGid(
        port=port.name,
        index=gid.index,
        address=ranked.address,
        kind=gid.kind,
        nic=gid.nic,
        reasons=("chosen by hand", *ranked.reasons),
        is_override=True,
        warnings=warnings,
    )
