"""What this process may have: pinned memory, its cgroup's memory and CPUs, /dev/shm, ports."""

from __future__ import annotations

import re

from mooncake_core.topology.devices import total_memory
from mooncake_core.topology.host import Limits
from mooncake_core.topology.tree import Tree
from mooncake_core.units import parse_size

_CGROUPS = "sys/fs/cgroup"
# Version 1 writes "no limit" as the largest multiple of a page.
_NO_LIMIT = 1 << 60


def read_limits(tree: Tree) -> Limits:
    """Return the limits that could be read."""
    limits = tree.text("proc/self/limits") or ""
    memlock = re.search(r"^Max locked memory\s+(unlimited|[0-9]{1,19})\s", limits, re.MULTILINE)
    return Limits(
        memlock=memlock.group(1) if memlock else "",
        cgroup_memory=_memory(tree),
        cgroup_cpus=_first(tree, "cpuset", ("cpuset.cpus.effective", "cpuset.effective_cpus")),
        shm_bytes=_shm_bytes(tree),
        local_ports="-".join((tree.text("proc/sys/net/ipv4/ip_local_port_range") or "").split()),
    )


def _memory(tree: Tree) -> str:
    text = _first(tree, "memory", ("memory.max", "memory.limit_in_bytes"))
    is_number = re.fullmatch(r"[0-9]{1,20}", text)
    if text == "max" or (is_number and int(text) >= _NO_LIMIT):
        return "unlimited"
    return text if is_number else ""


def _first(tree: Tree, controller: str, files: tuple[str, ...]) -> str:
    """Return the first file with a value, in the own cgroup, then where a container sees it."""
    for folder in (*_own_cgroups(tree, controller), _CGROUPS, f"{_CGROUPS}/{controller}"):
        for file in files:
            text = tree.text(f"{folder}/{file}")
            if text:
                return text
    return ""


def _own_cgroups(tree: Tree, controller: str) -> list[str]:
    found = []
    for line in (tree.text("proc/self/cgroup") or "").splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        if ".." in path or "\0" in path:
            continue  # another cgroup namespace's
        if controller in controllers.split(","):
            found.append(f"{_CGROUPS}/{controller}{path}")
        elif not controllers:
            found.append(f"{_CGROUPS}{path}")
    return found


def _shm_bytes(tree: Tree) -> int | None:
    """Read the size that it was mounted with; without one it is half of the memory."""
    mounts = tree.text("proc/self/mounts") or ""
    mount = re.search(r"^\S+ /dev/shm tmpfs (\S+) ", mounts, re.MULTILINE)
    if mount is None:
        return None
    size = re.search(r"(?:^|,)size=([0-9]{1,12})([kmg]?)(?:,|$)", mount.group(1))
    if size:
        unit = {"": "B", "k": "KiB", "m": "MiB", "g": "GiB"}[size.group(2)]
        return parse_size(f"{size.group(1)}{unit}")
    total = total_memory(tree, "proc/meminfo")
    return None if total is None else total // 2
