"""Tries every path to a running engine: from each local address to each of the peer's.

A shell: it opens connections, from threads. The native library is loaded, so the package does not
import this module by itself.
"""

from __future__ import annotations

import ipaddress
import socket
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from msgspec import Struct

from mooncake_core.errors import MooncakeError, TransferTimeout, WireError
from mooncake_core.native import _native, native_errors
from mooncake_core.topology.filters import EVERYTHING, Filter
from mooncake_core.topology.host import Host
from mooncake_core.topology.verdicts import usable_nics


class CheckedPath(Struct, frozen=True, kw_only=True):
    """One pair of addresses, tried."""

    local: str
    """Empty: the kernel's choice."""
    remote: str
    """host:port"""
    error: str = ""
    """The type of error; empty: every byte came back as it was sent."""
    problem: str = ""
    connect_s: float | None = None
    latency_s: float | None = None
    """Of an empty echo."""
    rate_bytes_per_s: float | None = None
    """Of an echo of 1 MiB, there and back."""


def check_paths(
    host: Host, endpoint: str, *, chosen: Filter = EVERYTHING, timeout_s: float = 2.0
) -> tuple[CheckedPath, ...]:
    """Try every path to the engine at `endpoint`, which says what other addresses it has.

    Blocks for at most `timeout_s` a round; in a round each address takes part once, so that paths
    do not slow each other down.

    Raises:
        MooncakeError: nothing at `endpoint` answers as an engine of ours, over no path.
        ValueError: `endpoint` is not host:port.
    """
    first = _reach(host, endpoint, chosen, timeout_s)
    pairs = [
        (local, remote)
        for remote in first.endpoints
        for local in _sources(host, chosen, remote) or [""]
    ]
    checked: dict[tuple[str, str], CheckedPath] = {}
    with ThreadPoolExecutor(max_workers=len(pairs)) as threads:
        for one_round in rounds(pairs):
            tries = [
                threads.submit(_try, local, remote, first.engine_id, timeout_s)
                for local, remote in one_round
            ]
            checked |= {pair: each.result() for pair, each in zip(one_round, tries, strict=True)}
    return tuple(checked[pair] for pair in pairs)


def rounds(pairs: Sequence[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    """Split pairs into lists in which no address stands twice. Pure."""
    left = list(pairs)
    while left:
        taken: list[tuple[str, str]] = []
        for local, remote in left:
            if all(local != other[0] and remote != other[1] for other in taken):
                taken.append((local, remote))
        left = [pair for pair in left if pair not in taken]
        yield taken


def _reach(host: Host, endpoint: str, chosen: Filter, timeout_s: float) -> _native.PathProbe:
    """Return what the peer says of itself, over the first path that it answers on."""

    def ask(local: str) -> _native.PathProbe | MooncakeError:
        try:
            with native_errors:
                return _native.probe_path(local, endpoint, 0, timeout_s)
        except MooncakeError as error:
            return error

    first = ask("")
    if not isinstance(first, MooncakeError):
        return first
    sources = [] if isinstance(first, WireError) else _sources(host, chosen, endpoint)
    if sources:
        with ThreadPoolExecutor(max_workers=len(sources)) as threads:
            for answer in threads.map(ask, sources):
                if not isinstance(answer, MooncakeError):
                    return answer
    raise _explained(first, endpoint, timeout_s) from first


def _explained(error: MooncakeError, endpoint: str, timeout_s: float) -> MooncakeError:
    """Return an error that says who it is that does not answer as an engine."""
    if not isinstance(error, WireError | TransferTimeout):
        return type(error)(f"no transfer engine answers at {endpoint}: {error}")
    if other := _look_at(endpoint):
        return WireError(f"{endpoint} is no transfer engine: {other}")
    if isinstance(error, WireError):
        return WireError(f"{endpoint} is no transfer engine: it answered something else: {error}")
    return TransferTimeout(f"{endpoint} did not answer within {timeout_s:g} s")


def _look_at(endpoint: str) -> str:
    """Return what it is that listens there; empty: not known."""
    host, _, port = endpoint.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), timeout=1) as connection:
            connection.sendall(b"HEAD / HTTP/1.0\r\n\r\n")
            said = connection.recv(64)
    except (OSError, UnicodeError):
        return ""
    if said.startswith(b"HTTP/"):
        return "it answered HTTP"
    if said.startswith(b'{"type":'):
        return "it is a te-bench target's control address; that of its engine stands beside it"
    return ""


def _try(local: str, remote: str, engine_id: int, timeout_s: float) -> CheckedPath:
    try:
        with native_errors:
            probe = _native.probe_path(local, remote, engine_id, timeout_s)
    except (MooncakeError, ValueError) as error:
        name = type(error).__name__
        return CheckedPath(local=local, remote=remote, error=name, problem=str(error))
    return CheckedPath(
        local=local,
        remote=remote,
        connect_s=probe.connect_s,
        latency_s=probe.latency_s,
        rate_bytes_per_s=probe.rate_bytes_per_s,
    )


def _sources(host: Host, chosen: Filter, remote: str) -> list[str]:
    """Return the local addresses that a remote one can be tried from; a name: none."""
    try:
        target = ipaddress.ip_address(remote.rpartition(":")[0].strip("[]"))
    except ValueError:
        return []
    nics = usable_nics(host, chosen)
    if target.is_loopback:
        nics = tuple(nic for nic in host.nics if nic.kind == "loopback")
    return [
        str(interface.ip)
        for nic in nics
        for interface in nic.interfaces()
        if interface.version == target.version and not interface.ip.is_link_local
    ]
