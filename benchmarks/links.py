"""How well batches use four shaped links: all equal, one slow, one cut and brought back.

Each figure is the median over `--repeats`, with its least and largest. `ratio` is to what plain
sockets, one a link and all at once, reach in the same repeat. Every byte is verified.

    sudo python benchmarks/links.py [--repeats 9] [--mbit 500] [--mib 128]
"""

from __future__ import annotations

import argparse
import itertools
import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.machine import describe
from benchmarks.namespaces import Links, missing

ROOT = Path(__file__).resolve().parent.parent
COUNT = 4
SMALL = 1 << 20
"""Bytes of each batch while a link is cut."""


class Process:
    """One end of the links; see link_process.py."""

    def __init__(self, links: Links, namespace: str, addresses: list[str], size: int) -> None:
        script = str(ROOT / "benchmarks" / "link_process.py")
        command = [sys.executable, script, json.dumps(addresses), str(size)]
        self._process = subprocess.Popen(
            links.command(namespace, *command),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
        )

    def call(self, name: str, *arguments: Any) -> Any:
        """Have something done there; return the answer."""
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([name, *arguments]) + "\n")
        self._process.stdin.flush()
        return json.loads(self._process.stdout.readline())

    def close(self) -> None:
        """End it."""
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()


class Bed:
    """The links with a process at each end, `user` here and `owner` there."""

    def __init__(self, mbit: float, size_bytes: int) -> None:
        self.links = Links(COUNT, mbit)
        self.size_bytes = size_bytes
        self.seed = 1000
        self.user = Process(self.links, self.links.here, self.links.here_addresses, size_bytes)
        self.owner = Process(self.links, self.links.there, self.links.there_addresses, size_bytes)
        endpoint, segment_id, ports = self.owner.call("about")
        self.targets = list(zip(self.links.there_addresses, ports, strict=True))
        assert self.user.call("open", endpoint, segment_id) == "tcp"

    def close(self) -> None:
        """End the processes and remove the links."""
        self.user.close()
        self.owner.close()
        self.links.close()

    def refill(self, op: str, seed: int) -> None:
        """Give the end that bytes come from other ones."""
        (self.user if op == "write" else self.owner).call("refill", seed)

    def verify(self, count: int | None = None) -> None:
        """Compare the first `count` bytes of both ends; None: all."""
        count = self.size_bytes if count is None else count
        digests = {one.call("digest", count) for one in (self.user, self.owner)}
        assert len(digests) == 1, "wrong bytes"

    def ratio(self, op: str, seed: int, plain_s: float = 1.0) -> tuple[float, float, float]:
        """Return the rate of one batch, that of plain sockets (B/s), and their ratio."""
        self.refill(op, seed)
        plain = sum(self.user.call("plain", self.targets, plain_s))
        rate = self.size_bytes / self.user.call("move", op, self.size_bytes)
        self.verify()
        return rate, plain, rate / plain

    def cut(self, op: str, link: int = 1) -> tuple[float, float]:
        """Cut a link under way; return the longest stall and the seconds until it is used again."""
        address = self.links.here_addresses[link]
        self.refill(op, self.seed)
        self.seed += 1
        self.user.call("start", op, SMALL)
        time.sleep(0.7)
        self.links.cut(link)
        time.sleep(1.5)
        restored_s = self.user.call("now")
        self.links.restore(link)
        time.sleep(4.0)
        said = self.user.call("stop")
        assert not said["error"], said["error"]
        self.verify(SMALL)
        self.user.call("move", op, self.size_bytes)
        self.verify()
        log = said["log"]
        stall_s = max(b[0] - a[0] for a, b in itertools.pairwise(log))
        before = [moved[address] for at, moved in log if at < restored_s][-1]
        used = [at for at, moved in log if at > restored_s and moved[address] > before]
        return stall_s, used[0] - restored_s if used else float("inf")


def spread(values: list[float], unit: str = "") -> str:
    return f"{statistics.median(values):.3f}{unit} ({min(values):.3f} to {max(values):.3f})"


def report(name: str, results: list[tuple[float, float, float]]) -> None:
    rates, plain, ratios = zip(*results, strict=True)
    to_mb = [rate / 1e6 for rate in rates]
    base = [rate / 1e6 for rate in plain]
    print(f"{name:22} {spread(to_mb):34} {spread(base):34} {spread(list(ratios))}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=9)
    parser.add_argument("--mbit", type=float, default=500, help="speed of each link")
    parser.add_argument("--mib", type=int, default=128, help="bytes of one batch")
    options = parser.parse_args()
    if reason := missing():
        sys.exit(reason)
    print(f"# {describe(options)}")
    print(f"{'links':22} {'batch MB/s':34} {'plain MB/s':34} ratio")
    bed = Bed(options.mbit, options.mib << 20)
    try:
        for op in ("write", "read"):
            results = [bed.ratio(op, seed) for seed in range(options.repeats)]
            report(f"{COUNT} equal, {op}", results)
        bed.links.shape(COUNT - 1, options.mbit / 10)
        for op in ("write", "read"):
            bed.ratio(op, 0)  # the speed has just changed
            results = [bed.ratio(op, seed) for seed in range(options.repeats)]
            report(f"one at a tenth, {op}", results)
        bed.links.shape(COUNT - 1, options.mbit)
        for op in ("write", "read"):
            cuts = [bed.cut(op) for _ in range(options.repeats)]
            stalls, returns = (list(column) for column in zip(*cuts, strict=True))
            print(f"one cut, {op}: longest stall {spread(stalls, ' s')}, ", end="")
            print(f"used again after {spread(returns, ' s')}", flush=True)
    finally:
        bed.close()


if __name__ == "__main__":
    main()
