"""A store of its own for a benchmark: a master and nodes, each a process on this host.

    python -m mooncake_core.store_bench.loopback master|node '{...}'

A child prints the addresses that it serves, or the problem why it does not, and serves until its
standard input ends.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import sys
import time
import urllib.request
from contextlib import ExitStack
from typing import Any

import msgspec

from mooncake_core.config import MasterConfig, StoreConfig, TransferConfig
from mooncake_core.errors import ConfigError, MooncakeError
from mooncake_core.store_bench.process import Child
from mooncake_core.te_bench.process import available_bytes
from mooncake_core.units import format_size

START_S = 30.0
_ROLES: dict[str, tuple[str, type[Any]]] = {
    "master": ("mooncake_core.store.master_service:serve_master", MasterConfig),
    "node": ("mooncake_core.store.node_service:serve_store", StoreConfig),
}


class _Status(msgspec.Struct, frozen=True):
    """Of a master's /status, what is needed here."""

    nodes: list[dict[str, Any]]


class LoopbackStore:
    """A running store. `with` ends its processes.

    Args:
        nodes: how many.
        capacity_bytes: of each.
        transfer: of each node's engine.

    Raises:
        ConfigError: a process cannot serve, or there is not so much memory.
    """

    def __init__(self, *, nodes: int, capacity_bytes: int, transfer: TransferConfig) -> None:
        _check_memory(nodes * capacity_bytes)
        with ExitStack() as stack:
            free = "127.0.0.1:0"
            self._master = stack.enter_context(
                _child("master", MasterConfig(listen=free, admin=free))
            )
            addresses = _addresses(self._master)
            self.master: str = addresses["rpc"]
            """host:port of the master."""
            self.admin: str = addresses["admin"]
            """host:port of its HTTP."""
            self._nodes = [
                stack.enter_context(_child("node", config))
                for config in _node_configs(self.master, nodes, capacity_bytes, transfer)
            ]
            for node in self._nodes:
                _addresses(node)
            _await_nodes(self.admin, nodes)
            self._stack = stack.pop_all()

    @property
    def master_pid(self) -> int:
        """Of the master's process."""
        return self._master.pid

    @property
    def node_pids(self) -> list[int]:
        """Of the nodes' processes."""
        return [node.pid for node in self._nodes]

    def close(self) -> None:
        """End all processes and wait for them. Idempotent."""
        for child in (*self._nodes, self._master):
            child.end()
        self._stack.close()

    def __enter__(self) -> LoopbackStore:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _node_configs(
    master: str, nodes: int, capacity_bytes: int, transfer: TransferConfig
) -> list[StoreConfig]:
    """Each in a domain of its own, as if they were hosts: so there can be copies."""
    return [
        StoreConfig(
            master=master, capacity=str(capacity_bytes), domain=f"node-{number}", transfer=transfer
        )
        for number in range(nodes)
    ]


def _child(role: str, config: MasterConfig | StoreConfig) -> Child:
    encoded = msgspec.json.encode(config).decode()
    return Child("mooncake_core.store_bench.loopback", role, encoded)


def _addresses(child: Child) -> dict[str, str]:
    said: dict[str, str] = msgspec.json.decode(child.hear() or b"{}")
    if not said or "problem" in said:
        raise ConfigError(said.get("problem", "a process of the store ended before it served"))
    return said


def _check_memory(needed: int) -> None:
    available = available_bytes()
    if available and needed > available * 0.9:
        raise ConfigError(
            f"--capacity: {format_size(needed)} are needed by all nodes, and "
            f"{format_size(available)} are available"
        )


def _await_nodes(admin: str, count: int) -> None:
    """Return when the master knows so many nodes."""
    ends_s = time.monotonic() + START_S
    while _online(admin) < count:
        if time.monotonic() > ends_s:
            raise MooncakeError(f"{admin}: {count} store nodes were not there in {START_S:.0f} s")
        time.sleep(0.01)


def _online(admin: str) -> int:
    with urllib.request.urlopen(f"http://{admin}/status", timeout=START_S) as answer:
        status = msgspec.json.decode(answer.read(), type=_Status)
    return sum(node["state"] == "online" for node in status.nodes)


async def _serve(role: str, encoded: str) -> None:
    where, kind = _ROLES[role]
    module, name = where.split(":")
    stop, loop = asyncio.Event(), asyncio.get_running_loop()

    def end_with_input() -> None:
        if not os.read(0, 4096):
            loop.remove_reader(0)
            stop.set()

    loop.add_reader(0, end_with_input)
    serve = getattr(importlib.import_module(module), name)
    await serve(msgspec.json.decode(encoded, type=kind), ready=_say, stop=stop)


def _say(words: dict[str, str]) -> None:
    print(msgspec.json.encode(words).decode(), flush=True)


def main(role: str, encoded: str) -> None:
    """Be a child."""
    try:
        asyncio.run(_serve(role, encoded))
    except MooncakeError as error:
        _say({"problem": str(error)})


if __name__ == "__main__":
    main(*sys.argv[1:])
