"""What each path of an engine has done. Pure."""

from __future__ import annotations

from typing import Literal

from msgspec import Struct

from mooncake_core.native import _native


class PathStatistics(Struct, frozen=True, kw_only=True):
    """One path to one peer, since the engine was made.

    Counts never go backwards: what was done under earlier peer ids and to earlier processes at the
    same endpoint is in them. Of paths that are gone the last 1,024 are kept.
    """

    peer: str
    """The endpoint of the other engine."""
    transport: Literal["shm", "tcp"]
    local: str
    """The address at this end; empty where the kernel chooses it."""
    remote: str
    """The address at the other end; empty for shm."""
    state: Literal["up", "quarantined", "probing", "gone"]
    reason: str
    """Of the last quarantine; empty: there was none."""
    read_bytes: int
    written_bytes: int
    slices: int
    """Completed."""
    resent_slices: int
    """Began here, and were completed on another path or connection."""
    failures: int
    """Connections that died or were given up."""
    quarantines: int
    connections: int
    """Open now."""
    in_flight_bytes: int
    """Now."""
    rate_bytes_per_s: float
    """As last measured."""


def path_statistics(path: _native.PathStatistics) -> PathStatistics:
    """Return a native entry as ours."""
    return PathStatistics(
        **{name: getattr(path, name) for name in PathStatistics.__struct_fields__}
    )
