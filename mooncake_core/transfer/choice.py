"""Which network and which addresses an engine uses, and why. Reads sysfs, procfs and one file."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from msgspec import Struct

from mooncake_core.config.tables import TransferConfig
from mooncake_core.errors import ConfigError
from mooncake_core.topology import (
    Host,
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
    return Choice(
        protocol="tcp",
        reason=_reason(config, host),
        addresses=_addresses(config, host),
        preferred=_preferred(config, host),
    )


def _reason(config: TransferConfig, host: Host) -> str:
    if config.protocol == "tcp":
        return 'protocol = "tcp" asks for it'
    findings = "; ".join((*rdma_reasons(host), "this build has no RDMA transport"))
    if config.protocol == "rdma":
        raise ConfigError(f"transfer.protocol: rdma cannot be used here: {findings}")
    return f"rdma cannot be used here: {findings}"


def _addresses(config: TransferConfig, host: Host) -> tuple[str, ...]:
    first = config.listen.rpartition(":")[0].strip("[]")
    found = resolve_addresses(host, config.addresses)
    return tuple(address for address in found if address != first)


def _preferred(config: TransferConfig, host: Host) -> dict[str, tuple[str, ...]]:
    """Return the addresses of the first column of the matrix."""
    if not config.topology:
        return {}
    try:
        return dict(preferred_addresses(host, load_matrix(Path(config.topology), host)))
    except ConfigError as error:
        raise ConfigError(f"transfer.topology: {error}") from error
