"""The original transfer engine, run beside this one: its bench and its Python calls.

It is no dependency: `--peer DIR` names a virtual environment that has
`mooncake-transfer-engine-non-cuda` installed, or `PATH` of one.
"""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

START_S = 20.0

# Runs under the peer's Python: makes so many synchronous writes, each a call of its own.
_WRITER = """
import ctypes, sys
from mooncake.engine import TransferEngine
role, *rest = sys.argv[1:]
engine = TransferEngine()
assert engine.initialize("127.0.0.1", "P2PHANDSHAKE", "tcp", "") == 0
memory = ctypes.create_string_buffer(1 << 20)
address = ctypes.addressof(memory)
assert engine.register_memory(address, 1 << 20) == 0
if role == "target":
    print("READY", engine.get_rpc_port(), address, flush=True)
    sys.stdin.read()
else:
    port, there, count = rest
    for _ in range(int(count)):
        assert engine.transfer_sync_write(f"127.0.0.1:{port}", address, int(there), 4096) == 0
    print("DONE", flush=True)
"""


class Peer:
    """The installed original.

    Raises:
        SystemExit: its bench is not there.
    """

    def __init__(self, root: Path) -> None:
        self._bench = root / "bin" / "transfer_engine_bench"
        self._python = root / "bin" / "python"
        if not self._bench.exists():
            raise SystemExit(f"--peer: {self._bench} is not there")

    @contextlib.contextmanager
    def target(self) -> Iterator[str]:
        """Run the bench's target and yield what its initiators call it by."""
        process = subprocess.Popen(
            [self._bench, "--mode=target", *_COMMON, "--local_server_name=127.0.0.1"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        try:
            yield _first_match(process, r"P2P handshake, listening on ([0-9.]+:[0-9]+)")
        finally:
            # The command is a script that runs the program as a child.
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def rate(self, segment: str, load: tuple[int, int, int], operation: str, seconds: int) -> float:
        """Return GB/s of its bench; `load` is (block bytes, batch, threads)."""
        block, batch, threads = load
        answer = subprocess.run(
            [
                *(self._bench, "--mode=initiator", *_COMMON, f"--segment_id={segment}"),
                *(f"--operation={operation}", f"--block_size={block}", f"--batch_size={batch}"),
                *(f"--threads={threads}", f"--duration={seconds}", "--report_unit=GB"),
            ],
            capture_output=True,
            text=True,
            check=True,
            timeout=60 + seconds,
        )
        match = re.search(r"throughput ([0-9.]+) GB/s", answer.stdout + answer.stderr)
        assert match is not None, answer.stderr[-2000:]
        return float(match.group(1))

    def write_often(self, count: int) -> tuple[int, float]:
        """Make so many writes of 4 KiB; return the sockets left in TIME_WAIT, and the seconds."""
        target = self._start("target")
        try:
            port, address = _first_match(target, r"READY ([0-9]+ [0-9]+)").split()
            owned = _listening_ports(target.pid)
            start_s = time.perf_counter()
            writer = self._start("writer", port, address, str(count))
            _first_match(writer, "(DONE)", limit_s=600)
            seconds = time.perf_counter() - start_s
            writer.wait(timeout=30)
            return time_wait(owned), seconds
        finally:
            target.kill()
            target.wait()

    def _start(self, *arguments: str) -> subprocess.Popen[str]:
        return subprocess.Popen(
            [self._python, "-c", _WRITER, *arguments],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )


_COMMON = ("--metadata_server=P2PHANDSHAKE", "--protocol=tcp")


def time_wait(ports: set[int]) -> int:
    """Return how many TCP connections with an end at one of the ports are in TIME_WAIT."""
    return sum(
        one.status == psutil.CONN_TIME_WAIT and bool(ports & {end.port for end in _ends(one)})
        for one in psutil.net_connections("tcp")
    )


def _ends(connection: psutil._common.sconn) -> list[psutil._common.addr]:
    return [end for end in (connection.laddr, connection.raddr) if end]


def _listening_ports(pid: int) -> set[int]:
    connections = psutil.Process(pid).net_connections("tcp")
    return {one.laddr.port for one in connections if one.status == psutil.CONN_LISTEN}


def _first_match(process: subprocess.Popen[str], pattern: str, limit_s: float = START_S) -> str:
    """Return the group of the first line that matches."""
    assert process.stdout is not None
    ends_s = time.monotonic() + limit_s
    for line in process.stdout:
        if match := re.search(pattern, line):
            return match.group(1)
        assert time.monotonic() < ends_s, f"no line matches {pattern!r}"
    raise AssertionError(f"the process ended, and no line matched {pattern!r}")
