"""tcp over loopback: this engine, plain sockets, iperf3 and the original, in turn, in one run.

Each pair measures the plain sockets, this engine, iperf3 and the original one right after the
other, so that a ratio is of one time. Both sides of each are processes of their own; every byte of
this engine's is verified.

    python benchmarks/tcp.py [--pairs 9] [--seconds 1] [--threads 2] [--peer DIR] [--json]

Nothing else should run meanwhile.
"""

from __future__ import annotations

import argparse
import json
import shutil
import socket
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from machine import describe
from peer import Peer, time_wait

from mooncake_core.config import TransferConfig
from mooncake_core.te_bench.control import Control
from mooncake_core.te_bench.loopback import LoopbackTarget
from mooncake_core.te_bench.measure import Limits, run_threads
from mooncake_core.te_bench.plan import Case, Layout
from mooncake_core.te_bench.row import Row
from mooncake_core.te_bench.session import Session

LOADS = [(1 << 20, 16), (64 << 10, 16), (4 << 10, 128)]
TRANSFERS = 20_000


@dataclass
class Line:
    """One load in one direction: GB/s of everything, pair by pair."""

    block_bytes: int
    batch: int
    threads: int
    operation: str
    ours: list[float] = field(default_factory=list)
    sockets: list[float] = field(default_factory=list)
    iperf3: list[float] = field(default_factory=list)
    original: list[float] = field(default_factory=list)

    def ratio(self, other: str) -> float | None:
        """Return the median of ours over another's, pair by pair."""
        pairs = list(zip(self.ours, getattr(self, other), strict=False))
        return statistics.median(a / b for a, b in pairs) if pairs else None


def ours(address: str, line: Line, seconds: float) -> tuple[float, float, int]:
    """Return GB/s of this engine and of plain sockets next to it, and the streams of those."""
    answer = subprocess.run(
        [
            *(sys.executable, "-m", "mooncake_cli", "te-bench", "run", address, "--json"),
            *("--transport=tcp", f"--block={line.block_bytes}", f"--batch={line.batch}"),
            *(f"--threads={line.threads}", f"--direction={line.operation}"),
            *(f"--seconds={seconds}", "--repeats=1"),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    row: dict[str, Any] = json.loads(answer.stdout)["rows"][0]
    sample = row["samples"][0]
    beside = sample["baseline_bytes_per_s"] / 1e9
    return row["gb_per_s"], beside, row["baseline_streams"]


@contextmanager
def iperf3_server() -> Iterator[int]:
    """Run a server and yield its port."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port: int = free.getsockname()[1]
    server = subprocess.Popen(
        ["iperf3", "-s", "-B", "127.0.0.1", "-p", str(port), "--forceflush"],
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    while "listening" not in server.stdout.readline():
        assert server.poll() is None, "iperf3 ended"
    try:
        yield port
    finally:
        server.kill()
        server.wait()


def iperf3(port: int, line: Line, streams: int, seconds: float) -> float:
    """Return GB/s of iperf3 with as many streams and the same blocks, at most 1 MiB."""
    answer = subprocess.run(
        [
            *("iperf3", "-J", "-c", "127.0.0.1", "-p", str(port), "-P", str(streams)),
            *("-t", str(max(1, round(seconds))), "-l", str(min(line.block_bytes, 1 << 20))),
            *(["-R"] if line.operation == "read" else []),
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    return float(json.loads(answer.stdout)["end"]["sum_received"]["bits_per_second"]) / 8e9


def measure(line: Line, pairs: int, seconds: float, peer: Peer | None) -> None:
    """Fill a line."""
    load = (line.block_bytes, line.batch, line.threads)
    with ExitStack() as stack:
        target = stack.enter_context(LoopbackTarget(TransferConfig()))
        port = stack.enter_context(iperf3_server()) if shutil.which("iperf3") else None
        segment = stack.enter_context(peer.target()) if peer else None
        for _ in range(pairs):
            rate, beside, streams = ours(target.address, line, seconds)
            line.ours.append(rate)
            line.sockets.append(beside)
            if port is not None:
                line.iperf3.append(iperf3(port, line, streams, seconds))
            if peer and segment:
                whole = max(1, round(seconds))
                line.original.append(peer.rate(segment, load, line.operation, whole))


def leftover_sockets() -> int:
    """Make many transfers, each its own call; return the sockets left in TIME_WAIT."""
    case = Case(transport="tcp", direction="write", block_bytes=4096, batch=1, threads=1)
    config = TransferConfig()
    with LoopbackTarget(config) as target, Control(target.address) as control:
        ports = {int(control.welcome.engine.rpartition(":")[2])}
        with Session(control, "tcp", config) as session:
            layout = Layout(block_bytes=4096, batch=1, slots=1)
            with Row(session.engine, control, case, layout) as row:
                run_threads(row, Limits(rounds=TRANSFERS))
        return time_wait(ports)


def show(lines: list[Line]) -> None:
    """Print medians, the spread of ours, and ratios."""
    print("load               op     ours  (min..max)    sockets  iperf3  original   of sockets")
    for line in lines:
        known = {name: getattr(line, name) for name in ("sockets", "iperf3", "original")}
        medians = {
            name: f"{statistics.median(each):.2f}" if each else "-" for name, each in known.items()
        }
        ratio, against = line.ratio("sockets"), line.ratio("original")
        print(
            f"{line.block_bytes >> 10:5} KiB x {line.batch:3} x {line.threads} "
            f"{line.operation:5} {statistics.median(line.ours):6.2f}  "
            f"({min(line.ours):.2f}..{max(line.ours):.2f})"
            f"{medians['sockets']:>11}{medians['iperf3']:>8}{medians['original']:>10}"
            f"{ratio or 0:13.0%}"
            + (f", {against:.2f} x the original" if against is not None else "")
        )
    print("GB/s, medians over pairs; ratios are medians of ratios pair by pair")


def main() -> None:
    """Parse flags, measure, print the table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.0)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--peer", type=Path, help="a virtual environment with the original")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    peer = Peer(options.peer) if options.peer else None
    if peer is None:
        print("the original is left out: --peer names where it is installed", file=sys.stderr)
    if not shutil.which("iperf3"):
        print("iperf3 is left out: it is not installed", file=sys.stderr)
    lines = [
        Line(block, batch, options.threads, operation)
        for block, batch in LOADS
        for operation in ("write", "read")
    ]
    for line in lines:
        measure(line, options.pairs, options.seconds, peer)
    left = leftover_sockets()
    theirs = peer.write_often(TRANSFERS) if peer else None
    if options.json:
        rows = [asdict(line) for line in lines]
        machine = describe(options)
        extra = {"time_wait": left, "original_time_wait": theirs and theirs[0]}
        print(json.dumps({"machine": machine, "pairs": options.pairs, "lines": rows, **extra}))
        return
    print(f"# {describe(options)}")
    show(lines)
    print(f"sockets in TIME_WAIT after {TRANSFERS:,} transfers: {left}", end="")
    print(f"; the original: {theirs[0]}" if theirs else "")


if __name__ == "__main__":
    main()
