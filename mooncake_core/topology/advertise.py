"""Which address to tell the others. Pure.

It is the source address of the route to the master, since whoever reaches the master can answer
there; but none of a container's bridge, of a tunnel or of loopback, unless it is named.
"""

from __future__ import annotations

import ipaddress

from msgspec import Struct

from mooncake_core.errors import ConfigError
from mooncake_core.topology.host import Host, Interface, IpAddress, Nic, Route
from mooncake_core.topology.usable import address_text, resolve_addresses
from mooncake_core.topology.verdicts import usable_nics


class Advertised(Struct, frozen=True, kw_only=True):
    """The choice, and why it was made."""

    address: str
    nic: str
    reason: str
    warnings: tuple[str, ...] = ()


def advertise_address(host: Host, master: str, *, wanted: str = "") -> Advertised:
    """Choose the address of this host that others are told.

    Args:
        host: whose address it is.
        master: the master's IP address; look a name up first.
        wanted: an address or interface that the user named; empty: none.

    Raises:
        ConfigError: 0.0.0.0 or an address that is not this host's was wanted, or there is none.
    """
    target = _target(master)
    if wanted:
        return _named(host, target, wanted)
    local = _owner(host, target)
    if local is not None:
        return _on_this_host(host, *local)
    usable = [nic for nic in usable_nics(host) if _sources(nic, target)]
    route = _route(host, target)
    nic = host.nic(route.nic) if route else None
    if route and nic and _sources(nic, target) and (nic in usable or not usable):
        return _chosen(nic, _source(nic, target, route), usable, f"the route to {target}")
    if not usable:
        raise ConfigError(f"no interface with an IPv{target.version} address leads to {target}")
    first = usable[0]
    why = f"{route.nic} leads to {target}, but is skipped" if route else f"no route to {target}"
    return _chosen(first, _source(first, target, None), usable, why, warn=True)


def _target(master: str) -> IpAddress:
    try:
        target = ipaddress.ip_address(master.removeprefix("[").removesuffix("]"))
    except ValueError as error:
        raise ConfigError(f"{master!r} is no IP address of a master") from error
    if target.is_unspecified:
        raise ConfigError(f"{master} names no master: give the address that it listens on")
    return target


def _named(host: Host, target: IpAddress, wanted: str) -> Advertised:
    (address,) = resolve_addresses(host, [wanted], key="advertise")
    plain = ipaddress.ip_address(address.partition("%")[0])
    warnings: tuple[str, ...] = ()
    if plain.is_loopback and not target.is_loopback:
        warnings = (f"{address} reaches this host alone; the master is at {target}",)
    owner = _owner(host, plain)
    nic = owner[0].name if owner else ""
    return Advertised(address=address, nic=nic, reason="named by hand", warnings=warnings)


def _owner(host: Host, address: IpAddress) -> tuple[Nic, Interface] | None:
    for nic in host.nics:
        for interface in nic.interfaces():
            is_own = interface.ip == address
            if is_own or (nic.kind == "loopback" and address.is_loopback):
                return nic, interface if is_own else ipaddress.ip_interface(address)
    return None


def _on_this_host(host: Host, nic: Nic, interface: Interface) -> Advertised:
    warnings: tuple[str, ...] = ()
    if interface.ip.is_loopback:
        warnings = ("the master is on loopback: no process of another host can take part",)
    return Advertised(
        address=address_text(nic, interface),
        nic=nic.name,
        reason="the master is on this host, at this address",
        warnings=warnings,
    )


def _route(host: Host, target: IpAddress) -> Route | None:
    """Return the route that the kernel takes: the longest prefix, then the smallest metric."""
    fitting = []
    for route in host.routes:
        network = ipaddress.ip_network(route.network)
        if network.version == target.version and target in network:
            fitting.append((-network.prefixlen, route.metric, route))
    return min(fitting, key=lambda each: each[:2])[2] if fitting else None


def _sources(nic: Nic, target: IpAddress) -> list[Interface]:
    """Return the addresses from which an interface can reach the target."""
    found = [each for each in nic.interfaces() if each.version == target.version]
    if target.is_link_local:
        return found
    return [each for each in found if not each.ip.is_link_local]


def _source(nic: Nic, target: IpAddress, route: Route | None) -> Interface:
    """Return the address in the network of the next hop, else the first."""
    hop = ipaddress.ip_address(route.gateway) if route and route.gateway else target
    sources = _sources(nic, target)
    return next((each for each in sources if hop in each.network), sources[0])


def _chosen(
    nic: Nic, source: Interface, usable: list[Nic], why: str, *, warn: bool = False
) -> Advertised:
    warnings = [why] if warn else []
    others = [other.name for other in usable if other is not nic]
    if others:
        warnings.append(
            f"{nic.name} {source.ip} is one of several; name another if peers reach this host over "
            f"{', '.join(others)}"
        )
    if nic not in usable:
        warnings.append(f"{nic.name} is usually skipped, and is the only way to the master")
    return Advertised(
        address=address_text(nic, source), nic=nic.name, reason=why, warnings=tuple(warnings)
    )
