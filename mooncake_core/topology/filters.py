"""Which devices the user lets be used: names or globs. Pure."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase

from msgspec import Struct

from mooncake_core.errors import ConfigError
from mooncake_core.topology.host import Host


class Filter(Struct, frozen=True, kw_only=True):
    """Names or globs of network interfaces, RDMA devices (mlx5_0) or ports (mlx5_0/1)."""

    only: tuple[str, ...] = ()
    """Nothing else is used. Empty: everything may be. An interface that is written out here is
    used though it would be skipped as a container's, a tunnel's or virtual."""
    exclude: tuple[str, ...] = ()

    def reason(self, names: Iterable[str]) -> str:
        """Return why the device with these names is not to be used; empty: it may be."""
        names = list(names)
        for pattern in self.exclude:
            if _matches(names, pattern):
                return f"excluded by {pattern!r}"
        if self.only and not any(_matches(names, pattern) for pattern in self.only):
            return f"not among {', '.join(self.only)}"
        return ""

    def check(self, host: Host) -> None:
        """Raise ConfigError for a pattern that no device of this host fits."""
        names = device_names(host)
        for flag, patterns in (("--only", self.only), ("--exclude", self.exclude)):
            for pattern in patterns:
                if not _matches(names, pattern):
                    raise ConfigError(
                        f"{flag}: {pattern}: no device fits; {nearest(pattern, names)}"
                    )


EVERYTHING = Filter()


def device_names(host: Host) -> list[str]:
    """Return every name that a device of this host goes by."""
    ports = [name for port in host.rdma for name in (port.device, port.name)]
    return [*dict.fromkeys(ports), *(nic.name for nic in host.nics)]


def host_addresses(host: Host) -> list[str]:
    """Return every address of this host, without prefix length."""
    return [str(interface.ip) for nic in host.nics for interface in nic.interfaces()]


def nearest(name: str, names: Sequence[str]) -> str:
    """Return a hint at which of `names` was meant."""
    close = difflib.get_close_matches(name, names, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"there is {', '.join(names)}" if names else "there is none"


def _matches(names: Iterable[str], pattern: str) -> bool:
    return any(fnmatchcase(name, pattern) for name in names)
