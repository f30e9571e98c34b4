"""Drivers of both stores, and the original's processes, ended whatever happens."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import psutil

DRIVER = Path(__file__).with_name("store_driver.py")
ROOT = DRIVER.parents[1]


class Problem(Exception):
    """A driver could not do what it was told to."""


class Driver:
    """A process of store_driver.py. `with` ends it.

    Args:
        arguments: its command line, from the interpreter on.
    """

    def __init__(self, *arguments: str) -> None:
        path = {"PYTHONPATH": str(ROOT)} if arguments[0] == sys.executable else {}
        self.process = subprocess.Popen(
            [arguments[0], str(DRIVER), *arguments[1:]],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, **path},
            start_new_session=True,
        )
        try:
            self._hear()
        except BaseException:
            self.close()
            raise

    def ask(self, do: str, **order: Any) -> dict[str, float]:
        """Have an order carried out, see store_driver.Driver.

        Raises:
            Problem: it could not be.
        """
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps({"do": do, **order}) + "\n")
        self.process.stdin.flush()
        return self._hear()

    def close(self) -> None:
        """End the process."""
        self.process.kill()
        self.process.wait()
        for stream in (self.process.stdin, self.process.stdout):
            assert stream is not None
            stream.close()

    def __enter__(self) -> Driver:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _hear(self) -> dict[str, float]:
        assert self.process.stdout is not None
        for line in self.process.stdout:  # the original writes lines of its own
            head, _, rest = line.partition("ANSWER ")
            if rest and not head:
                answer: dict[str, Any] = json.loads(rest)
                if "problem" in answer:
                    raise Problem(answer["problem"])
                return answer
        raise Problem("a driver ended")


def ours(master: str, **options: Any) -> Driver:
    """Return a client of this store."""
    return Driver(sys.executable, "drive", "ours", master, json.dumps(options))


class Original:
    """The original's master and a process that owns the memory. `with` ends both.

    Args:
        root: a virtual environment that has it, see peer.py.
        pool_bytes: of the memory.
    """

    def __init__(self, root: Path, pool_bytes: int) -> None:
        self._python = str(root / "bin" / "python")
        with ExitStack() as stack:
            port, process = stack.enter_context(_original_master(root))
            self.master, self.master_pid = f"127.0.0.1:{port}", process
            owner = (self._python, "own", "original", self.master, str(pool_bytes))
            stack.enter_context(Driver(*owner))
            self._stack = stack.pop_all()

    def driver(self) -> Driver:
        """Return a client of it."""
        return Driver(self._python, "drive", "original", self.master, "{}")

    def __enter__(self) -> Original:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()


def cpu_s(pid: int) -> float:
    """Return the processor time of a process and what it has started."""
    root = psutil.Process(pid)
    times = [each.cpu_times() for each in (root, *root.children(recursive=True))]
    return sum(time.user + time.system for time in times)


@contextmanager
def _original_master(root: Path) -> Iterator[tuple[int, int]]:
    """Run its master on free ports; yield the port and the process's number."""
    rpc, metrics = _free_ports(2)
    process = subprocess.Popen(
        [
            *(str(root / "bin" / "mooncake_master"), f"--rpc_port={rpc}"),
            *(f"--metrics_port={metrics}", "--enable_http_metadata_server=false"),
            *("--rpc_address=127.0.0.1", "--metrics_host=127.0.0.1"),
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield rpc, process.pid
    finally:
        # The command is a script that runs the program as a child.
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _free_ports(count: int) -> Sequence[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    try:
        return [each.getsockname()[1] for each in sockets]
    finally:
        for each in sockets:
            each.close()
