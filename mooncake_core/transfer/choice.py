"""Which network and which addresses an engine uses, and why. Reads sysfs, procfs and one file."""

from __future__ import annotations

import ipaddress
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from mooncake_core.config.tables import TransferConfig
from mooncake_core.errors import ConfigError
from mooncake_core.topology.addresses import read_addresses
from mooncake_core.topology.host import Nic
from mooncake_core.topology.network import read_nics
from mooncake_core.topology.rdma import read_rdma
from mooncake_core.topology.routes import read_routes
from mooncake_core.topology.tree import Tree


class Choice(Struct, frozen=True, kw_only=True):
    """What was made of `protocol`, `addresses` and `topology`."""

    protocol: Literal["tcp"]
    reason: str
    addresses: tuple[str, ...]
    """Further addresses to listen on, without port or brackets."""
    preferred: dict[str, tuple[str, ...]]
    """Location of memory -> the addresses near it; a location that is absent is near to all."""


def choose(config: TransferConfig, root: Path = Path("/")) -> Choice:
    """Return what an engine is to use on the host that `root` shows.

    Only `auto` and `rdma` look at RDMA devices.

    Raises:
        ConfigError: `rdma` cannot be used; an interface or a file is not there or not usable.
    """
    tree = Tree(root)
    reason = 'protocol = "tcp" asks for it'
    if config.protocol != "tcp":
        findings = "; ".join(_why_no_rdma(tree))
        if config.protocol == "rdma":
            raise ConfigError(f"transfer.protocol: rdma cannot be used here: {findings}")
        reason = f"rdma cannot be used here: {findings}"
    # Interfaces are not looked at where none is asked for.
    nics = _read_nics(tree) if config.addresses or config.topology else ()
    return Choice(
        protocol="tcp",
        reason=reason,
        addresses=_addresses(config, nics),
        preferred=_preferred(config, nics),
    )


def _read_nics(tree: Tree) -> tuple[Nic, ...]:
    return read_nics(tree, read_addresses(tree, read_routes(tree), {}))


def _why_no_rdma(tree: Tree) -> Iterator[str]:
    ports = read_rdma(tree)
    if not ports:
        yield "there is no RDMA device"
    for port in ports:
        state = port.state or "in an unknown state"
        yield f"{port.device} port {port.port} is {state}"
    yield "this build has no RDMA transport"


def _addresses(config: TransferConfig, nics: tuple[Nic, ...]) -> tuple[str, ...]:
    if config.addresses == ("auto",):
        found = [address for nic in nics if _is_usable(nic) for address in _addresses_of(nic)[:1]]
    else:
        found = [address for entry in config.addresses for address in _named(entry, nics)]
    first = config.listen.rpartition(":")[0].strip("[]")
    return tuple(address for address in dict.fromkeys(found) if address != first)


def _is_usable(nic: Nic) -> bool:
    is_network = nic.kind in {"ethernet", "infiniband"}
    return is_network and nic.operstate == "up" and not nic.is_virtual and not nic.master


def _named(entry: str, nics: tuple[Nic, ...]) -> tuple[str, ...]:
    """Return the addresses that an entry of `addresses` stands for."""
    nic = next((nic for nic in nics if nic.name == entry), None)
    if nic is not None:
        addresses = _addresses_of(nic)
        if not addresses:
            raise ConfigError(f"transfer.addresses: the interface {entry} has no address")
        return addresses[:1]
    try:
        return (str(ipaddress.ip_address(entry)),)
    except ValueError:
        known = ", ".join(nic.name for nic in nics)
        raise ConfigError(
            f"transfer.addresses: {entry!r} is neither an address nor an interface; there are "
            f"{known or 'no interfaces'}"
        ) from None


def _addresses_of(nic: Nic) -> tuple[str, ...]:
    """Return the addresses of an interface, those that need no zone first."""
    addresses = [ipaddress.ip_interface(each).ip for each in nic.addresses]
    plain = [str(each) for each in addresses if each.version == 4 or not each.is_link_local]
    zoned = [f"{each}%{nic.name}" for each in addresses if each.version == 6 and each.is_link_local]
    return (*plain, *zoned)


def _preferred(config: TransferConfig, nics: tuple[Nic, ...]) -> dict[str, tuple[str, ...]]:
    """Return the addresses of the first column of the matrix: interfaces, or addresses as such."""
    if not config.topology:
        return {}
    try:
        matrix = msgspec.json.decode(
            Path(config.topology).read_bytes(), type=dict[str, tuple[tuple[str, ...], ...]]
        )
    except (OSError, msgspec.DecodeError) as error:
        raise ConfigError(f"transfer.topology: {config.topology}: {error}") from error
    near: Mapping[str, tuple[str, ...]] = {nic.name: _addresses_of(nic) for nic in nics}
    return {
        location: tuple(address for name in columns[0] for address in near.get(name, (name,)))
        for location, columns in matrix.items()
        if columns
    }
