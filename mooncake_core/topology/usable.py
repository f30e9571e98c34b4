"""The addresses over which bytes can be moved, as the transfer engine wants them. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping

from mooncake_core.errors import ConfigError
from mooncake_core.topology.filters import EVERYTHING, Filter, host_addresses, nearest
from mooncake_core.topology.gids import best_gid, interface_of
from mooncake_core.topology.host import Host, Interface, Nic
from mooncake_core.topology.matrix import Matrix
from mooncake_core.topology.verdicts import usable_nics


def usable_addresses(host: Host, chosen: Filter = EVERYTHING) -> tuple[str, ...]:
    """Return the best address of each usable interface; empty: only loopback is left."""
    return tuple(filter(None, (best_address(nic) for nic in usable_nics(host, chosen))))


def best_address(nic: Nic) -> str:
    """Return an interface's IPv4 address, else an IPv6 one, link-local last; empty: it has none.

    A link-local IPv6 address names its interface: fe80::1%eth0.
    """
    ordered = sorted(nic.interfaces(), key=lambda each: (each.ip.is_link_local, each.version))
    return address_text(nic, ordered[0]) if ordered else ""


def address_text(nic: Nic, interface: Interface) -> str:
    """Return an address of an interface as sockets take it."""
    needs_scope = interface.version == 6 and interface.ip.is_link_local
    return f"{interface.ip}%{nic.name}" if needs_scope else str(interface.ip)


def resolve_addresses(
    host: Host, names: Iterable[str], *, key: str = "transfer.addresses"
) -> tuple[str, ...]:
    """Return the addresses that `names` stand for, each once, in their order.

    Args:
        host: that has them.
        names: interfaces, also such as are usually skipped, or addresses of this host; "auto"
            stands for all usable interfaces.
        key: that errors begin with.

    Raises:
        ConfigError: no such interface or address here, or the interface has none.
    """
    found: list[str] = []
    for name in names:
        found += usable_addresses(host) if name == "auto" else [_resolve(host, name, key)]
    return tuple(dict.fromkeys(found))


def preferred_addresses(host: Host, matrix: Matrix) -> Mapping[str, tuple[str, ...]]:
    """Return location -> the addresses near it; a location whose NICs have none is left out."""
    addresses = {
        location: tuple(
            dict.fromkeys(filter(None, (_address_of(host, name) for name in preferred)))
        )
        for location, (preferred, _) in matrix.items()
    }
    return {location: near for location, near in addresses.items() if near}


def _resolve(host: Host, name: str, key: str) -> str:
    nic = host.nic(name)
    if nic is not None:
        address = best_address(nic)
        if not address:
            raise ConfigError(f"{key}: {name} has no address")
        return address
    plain = name.removeprefix("[").removesuffix("]")
    try:
        wanted = ipaddress.ip_address(plain)
    except ValueError:
        names = [nic.name for nic in host.nics]
        hint = nearest(name, names)
        raise ConfigError(
            f"{key}: {name!r} is neither an interface nor an address; {hint}"
        ) from None
    if wanted.is_unspecified:
        raise ConfigError(
            f"{key}: {name} names every interface and so no path; {known_addresses(host)}"
        )
    for nic in host.nics:
        for interface in nic.interfaces():
            if plain in (str(interface.ip), address_text(nic, interface)) or wanted == interface.ip:
                return address_text(nic, interface)
    if wanted.is_loopback:
        return str(wanted)
    raise ConfigError(f"{key}: {name} is no address of this host; {known_addresses(host)}")


def known_addresses(host: Host) -> str:
    """Return "there is eth0 10.0.0.2, lo 127.0.0.1" with what the host's interfaces have."""
    known = [f"{nic.name} {best_address(nic)}" for nic in host.nics if nic.addresses]
    return f"there is {', '.join(known)}" if known else "there is none"


def _address_of(host: Host, name: str) -> str:
    """The IP address of an interface or of an RDMA device's interface; empty: it has none."""
    if name in host_addresses(host):
        return name
    nic = host.nic(name)
    if nic is not None:
        return best_address(nic)
    for port in host.rdma:
        if name in (port.device, port.name):
            interface = interface_of(host, best_gid(host, port)) if port.gids else None
            if interface is not None and not interface.ip.is_link_local:
                return str(interface.ip)
            for nic in filter(None, map(host.nic, port.nics)):
                if address := best_address(nic):
                    return address
    return ""
