"""A look at the host before anything is measured. Reads procfs and sysfs."""

from __future__ import annotations

import ipaddress
import os
import resource
from collections.abc import Iterable, Iterator
from pathlib import Path

from mooncake_core.errors import MooncakeError
from mooncake_core.te_bench.control import Welcome
from mooncake_core.te_bench.options import BenchConfig
from mooncake_core.te_bench.plan import Case, memory_needed
from mooncake_core.te_bench.process import available_bytes
from mooncake_core.te_bench.report import Check, State
from mooncake_core.topology import read_host
from mooncake_core.units import format_size

FEW_PORTS = 10_000
FEW_FILES = 1024
USUAL_MTU = 1500


def check_host(
    welcome: Welcome, cases: Iterable[Case], config: BenchConfig, *, is_same_host: bool
) -> tuple[Check, ...]:
    """Return what was found about memory, limits and addresses.

    Raises:
        MooncakeError: what is asked for cannot be done here.
    """
    cases = tuple(cases)
    # The baseline has as much of its own.
    shares = (2 if is_same_host else 1) * (1 if config.no_baseline else 2)
    checks = (
        _memory(memory_needed(cases, config.memory_bytes) * shares),
        _memlock(),
        _files(),
        _ports(),
        _processors(cases),
        *_address(welcome.engine, is_same_host),
    )
    for check in checks:
        if check.state == "bad":
            raise MooncakeError(f"{check.name}: {check.finding}")
    return checks


def _memory(needed: int) -> Check:
    available = available_bytes()
    text = f"{format_size(needed)} are needed, {format_size(available)} are available"
    if available and needed > available * 0.9:
        hint = "take less memory, or smaller blocks or batches"
        return Check(name="memory", state="bad", finding=f"{text}; {hint}")
    return Check(name="memory", state="good", finding=text)


def _memlock() -> Check:
    soft, _ = resource.getrlimit(resource.RLIMIT_MEMLOCK)
    if soft == resource.RLIM_INFINITY:
        return Check(name="memlock", state="good", finding="no limit")
    text = f"{format_size(soft)} may be locked; shm and tcp lock nothing, RDMA would"
    return Check(name="memlock", state="good", finding=text)


def _files() -> Check:
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    state: State = "good" if soft == resource.RLIM_INFINITY or soft > FEW_FILES else "doubtful"
    return Check(name="open files", state=state, finding=f"at most {soft}; a connection is one")


def _ports() -> Check:
    try:
        text = Path("/proc/sys/net/ipv4/ip_local_port_range").read_text(encoding="ascii")
        first, last = map(int, text.split())
    except (OSError, ValueError):
        return Check(name="ports", state="doubtful", finding="the range cannot be read")
    count = last - first + 1
    state: State = "doubtful" if count < FEW_PORTS else "good"
    return Check(name="ports", state=state, finding=f"{first} to {last}: {count} for connections")


def _processors(cases: tuple[Case, ...]) -> Check:
    cpus = len(os.sched_getaffinity(0))
    threads = max(case.threads for case in cases)
    load = os.getloadavg()[0]
    text = f"there are {cpus} for {threads} thread{'s' * (threads > 1)} and the target"
    if load > cpus / 2:
        text += f", and other processes use them: the load is {load:.1f}"
        return Check(name="processors", state="doubtful", finding=text)
    state: State = "doubtful" if threads > cpus else "good"
    return Check(name="processors", state=state, finding=text)


def _address(endpoint: str, is_same_host: bool) -> Iterator[Check]:
    host = endpoint.rpartition(":")[0].strip("[]")
    try:
        address = ipaddress.ip_address(host)
    except ValueError:
        yield Check(name="address", state="good", finding=f"{endpoint}, a name")
        return
    if address.is_loopback and not is_same_host:
        text = f"{endpoint} is this host, not the target's; give it --transfer-listen"
        yield Check(name="address", state="bad", finding=text)
        return
    yield Check(name="address", state="good", finding=endpoint)
    yield _mtu(address)


def _mtu(target: ipaddress.IPv4Address | ipaddress.IPv6Address) -> Check:
    """Of the interface whose subnet the target is in."""
    for nic in read_host().nics:
        subnets = [ipaddress.ip_interface(each).network for each in nic.addresses]
        if nic.mtu is not None and any(target in subnet for subnet in subnets):
            state: State = "doubtful" if nic.mtu < USUAL_MTU else "good"
            return Check(name="MTU", state=state, finding=f"{nic.mtu} on {nic.name}")
    text = f"{target} is in no subnet of this host: it is reached through a router"
    return Check(name="MTU", state="doubtful", finding=text)
