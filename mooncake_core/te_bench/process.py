"""What a process and its host use, from procfs. Reads files; what cannot be read is 0 or empty."""

from __future__ import annotations

import hashlib
import os
import platform
import socket
import time
from collections.abc import Sequence
from pathlib import Path

import msgspec
from msgspec import Struct

from mooncake_core import __version__
from mooncake_core.topology import read_host

TIME_WAIT = "06"


class Usage(Struct, frozen=True, kw_only=True):
    """What one process has and has used."""

    cpu_s: float
    """Of all its threads since its start."""
    rss_bytes: int
    fds: int
    sockets: int


class Machine(Struct, frozen=True, kw_only=True):
    """Where a process runs; what makes two results comparable."""

    name: str
    kernel: str
    cpu: str
    cpus: int
    """That the process may use."""
    memory_bytes: int
    python: str
    mooncake: str
    topology: str
    """Digest of NICs, RDMA devices, NUMA nodes and GPUs; equal iff they are."""


def read_usage() -> Usage:
    """Return what this process has used."""
    links = list(_descriptors())
    return Usage(
        cpu_s=time.process_time(),
        rss_bytes=_status_kib("VmRSS") << 10,
        fds=len(links),
        sockets=sum(link.startswith("socket:") for link in links),
    )


def read_machine() -> Machine:
    """Return the host that this process runs on."""
    host = read_host()
    # Neither routes nor this process's limits.
    inventory = msgspec.json.encode([host.nics, host.rdma, host.numa, host.gpus])
    return Machine(
        name=socket.gethostname(),
        kernel=f"{platform.system()} {platform.release()}",
        cpu=_field("/proc/cpuinfo", "model name") or platform.machine(),
        cpus=len(os.sched_getaffinity(0)),
        memory_bytes=int((_field("/proc/meminfo", "MemTotal") or "0").split()[0]) << 10,
        python=platform.python_version(),
        mooncake=__version__,
        topology=hashlib.blake2b(inventory, digest_size=8).hexdigest(),
    )


def available_bytes() -> int:
    """Return the memory that the host could still give; 0 where that cannot be read."""
    return int((_field("/proc/meminfo", "MemAvailable") or "0").split()[0]) << 10


def count_time_wait(ports: Sequence[int]) -> int:
    """Return how many TCP sockets of this network namespace wait after one of these ports."""
    wanted = {f"{port:04X}" for port in ports}
    return sum(
        state == TIME_WAIT and not wanted.isdisjoint(ends)
        for name in ("tcp", "tcp6")
        for *ends, state in _sockets(Path("/proc/net") / name)
    )


def _sockets(path: Path) -> list[tuple[str, str, str]]:
    """Return (local port, remote port, state), in hexadecimal."""
    rows = [line.split()[1:4] for line in _lines(path)[1:]]
    return [
        (local.rpartition(":")[2], remote.rpartition(":")[2], state)
        for local, remote, state in rows
    ]


def _descriptors() -> list[str]:
    links = []
    for entry in Path("/proc/self/fd").iterdir():
        try:
            links.append(os.readlink(entry))
        except OSError:  # the one that listed the folder is gone
            continue
    return links


def _status_kib(key: str) -> int:
    return int((_field("/proc/self/status", key) or "0").split()[0])


def _field(path: str, key: str) -> str:
    """Return what follows "key:" in a file of such lines."""
    for line in _lines(Path(path)):
        name, _, value = line.partition(":")
        if name.strip() == key:
            return value.strip()
    return ""


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []
