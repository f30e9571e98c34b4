"""Which network and which addresses an engine uses, and why. Reads sysfs, procfs and one file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import msgspec
from msgspec import Struct

from mooncake_core.config.tables import TransferConfig
from mooncake_core.errors import ConfigError
from mooncake_core.topology import (
    Host,
    build_matrix,
    load_matrix,
    preferred_addresses,
    rdma_reasons,
    read_host,
    resolve_addresses,
)


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

    RDMA devices are not looked at with `protocol = "tcp"`, unless a `topology` may name them.

    Raises:
        ConfigError: `rdma` cannot be used; an interface or a file is not there or not usable.
    """
    host = read_host(root, rdma=config.protocol != "tcp" or bool(config.topology))
    reason, addresses = _reason(config, host), _addresses(config, host)
    if config.topology:
        preferred = _from_file(config, host)
    else:
        preferred = _from_system(host, {_listened(config), *addresses})
    return Choice(protocol="tcp", reason=reason, addresses=addresses, preferred=preferred)


def _reason(config: TransferConfig, host: Host) -> str:
    if config.protocol == "tcp":
        return 'protocol = "tcp" asks for it'
    findings = "; ".join((*rdma_reasons(host), "this build has no RDMA transport"))
    if config.protocol == "rdma":
        raise ConfigError(f"transfer.protocol: rdma cannot be used here: {findings}")
    return f"rdma cannot be used here: {findings}"


def _addresses(config: TransferConfig, host: Host) -> tuple[str, ...]:
    found = resolve_addresses(host, config.addresses)
    return tuple(address for address in found if address != _listened(config))


def _listened(config: TransferConfig) -> str:
    return config.listen.rpartition(":")[0].strip("[]")


def _from_system(host: Host, used: set[str]) -> dict[str, tuple[str, ...]]:
    """Return what is near by the interfaces' places; locations to which all is alike are left out.

    RDMA devices are left aside: their addresses are those of interfaces.
    """
    near = preferred_addresses(host, build_matrix(msgspec.structs.replace(host, rdma=())))
    ours = {location: used.intersection(found) for location, found in near.items()}
    return {
        location: tuple(sorted(found)) for location, found in ours.items() if found < used and found
    }


def _from_file(config: TransferConfig, host: Host) -> dict[str, tuple[str, ...]]:
    """Return the addresses of the first column of the matrix."""
    try:
        return dict(preferred_addresses(host, load_matrix(Path(config.topology), host)))
    except ConfigError as error:
        raise ConfigError(f"transfer.topology: {error}") from error
