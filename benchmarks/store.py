"""This store beside the original, beside memcpy, and without its checksums, in one run.

Of each store a process owns the memory and another puts and gets in one thread, without copies of
its own: this one's through its Python client, the original's through its Python calls. Both stores
run all the time, and one is used at a time: each pair is one measurement of this store, of memcpy
of as large pieces where that says something, and of the original, right after each other. Values
walk round 64 MiB of memory. What was put is removed, untimed, after each round, so that nothing is
evicted. Nothing else should run meanwhile.

    python benchmarks/store.py [--peer DIR] [--pairs 9] [--seconds 0.3] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from machine import describe
from store_processes import Driver, Original, Problem, cpu_s, ours

from mooncake_core.config import TransferConfig
from mooncake_core.store_bench.loopback import LoopbackStore

KIB, MIB = 1 << 10, 1 << 20
POOL = 2 << 30
LIMIT = 768 * MIB
"""Bytes of one round's puts; well below what either pool holds."""
IDLE_S = 10.0
LOADS = [(4 * KIB, 1), (4 * KIB, 128), (64 * KIB, 128), (1 * MIB, 1), (4 * MIB, 1)]
CHECKED = [(4 * KIB, 1), (64 * KIB, 128), (1 * MIB, 1), (4 * MIB, 1)]


@dataclass
class Line:
    """One figure of this store and what stands beside it, pair by pair."""

    what: str
    beside: str
    unit: str
    ours: list[float] = field(default_factory=list)
    other: list[float] = field(default_factory=list)

    def ratios(self) -> list[float]:
        """Return ours over the other, pair by pair."""
        return [one / other for one, other in zip(self.ours, self.other, strict=True)]

    def show(self) -> str:
        """Return medians, and the ratio's median, least and most."""
        if not self.other or not all(self.other):  # 0 is possible of what is idle
            others = "".join(f"  {self.beside} {value:.3f}" for value in self.other)
            return f"{self.what:36} {statistics.median(self.ours):10.3f} {self.unit}{others}"
        ratios = self.ratios()
        return (
            f"{self.what:36} {statistics.median(self.ours):10.3f}  {self.beside:16}"
            f" {statistics.median(self.other):10.3f} {self.unit:6}"
            f" {statistics.median(ratios):7.2f}  ({min(ratios):.2f}, {max(ratios):.2f})"
        )


@dataclass
class Sides:
    """Who is measured."""

    ours: Driver
    original: Driver | None
    options: argparse.Namespace

    def pairs(self) -> Iterator[int]:
        """Count the pairs."""
        return iter(range(self.options.pairs))


def name_of(size: int, batch: int) -> str:
    value = f"{size // MIB} MiB" if size >= MIB else f"{size // KIB} KiB"
    return value if batch == 1 else f"{batch} x {value}"


def scale(size: int, rate: float) -> float:
    """Return GB/s of large values, thousands a second of small ones."""
    return rate * size / 1e9 if size > 4 * KIB else rate / 1e3


def measure_load(sides: Sides, size: int, batch: int) -> list[Line]:
    """Return put and get beside the original; both stores beside memcpy where values are large."""
    unit = "GB/s" if size > 4 * KIB else "k/s"
    name, seconds = name_of(size, batch), sides.options.seconds
    lines = {op: Line(f"{op} {name}", "original", unit) for op in ("put", "get")}
    copies = {op: Line(f"{op} {name}", "memcpy", unit) for op in ("put", "get")}
    most = Line(f"memcpy of {name_of(size, 1)}, one thread", "original's put", unit)
    order = {"size": size, "batch": batch, "seconds": seconds, "limit": LIMIT}
    drivers = [sides.ours, *([sides.original] if sides.original else [])]
    for driver in drivers:
        driver.ask("check", size=size)
        driver.ask("round", **order)  # so that both are warm
    for _ in sides.pairs():
        mine = sides.ours.ask("round", **order)
        copied = sides.ours.ask("memcpy", size=size, seconds=seconds)["memcpy"]
        theirs = sides.original.ask("round", **order) if sides.original else {}
        for op, rate in mine.items():
            lines[op].ours.append(scale(size, rate))
            copies[op].ours.append(scale(size, rate))
            copies[op].other.append(scale(size, copied))
            lines[op].other += [scale(size, theirs[op])] if theirs else []
        most.ours.append(scale(size, copied))
        most.other += [scale(size, theirs["put"])] if theirs else []
    return [*lines.values(), *((*copies.values(), most) if size > 4 * KIB else ())]


def against_one_by_one(single: list[Line], batched: list[Line]) -> list[Line]:
    """Return our batches beside the original's single calls of the same run."""
    return [
        Line(f"{many.what}, ours", "original, single", "k/s", many.ours, one.other)
        for one, many in zip(single, batched, strict=True)
        if one.other
    ]


def measure_exists(sides: Sides, batch: int) -> Line:
    name = "exists" if batch == 1 else f"exists, batch of {batch}"
    line = Line(name, "original", "k/s")
    order = {"batch": batch, "seconds": sides.options.seconds}
    for _ in sides.pairs():
        line.ours.append(sides.ours.ask("exists", **order)["exists"] / 1e3)
        if sides.original:
            line.other.append(sides.original.ask("exists", **order)["exists"] / 1e3)
    return line


def measure_idle(pids: list[int]) -> Line:
    """Return which share of a core each master uses while its clients are silent."""
    before = [cpu_s(pid) for pid in pids]
    time.sleep(IDLE_S)
    used = [100 * (cpu_s(pid) - was) / IDLE_S for pid, was in zip(pids, before, strict=True)]
    return Line("idle master, of a core", "original", "%", used[:1], used[1:])


def measure_checksums(sides: Sides, same_host: str, store: LoopbackStore) -> list[Line]:
    """Return rates with checksums beside those without, over one transport."""
    way = "shm" if same_host == "shm" else "TCP"
    lines: list[Line] = []
    with ExitStack() as stack:
        with_them = stack.enter_context(ours(store.master, same_host=same_host))
        without = stack.enter_context(ours(store.master, same_host=same_host, checksums=False))
        for size, batch in CHECKED:
            name = name_of(size, batch)
            pair = {
                op: Line(f"{op} {name}, {way}", "no checksums", "GB/s") for op in ("put", "get")
            }
            order = {"size": size, "batch": batch, "limit": LIMIT, "seconds": sides.options.seconds}
            for driver in (with_them, without):
                driver.ask("round", **order)
            for _ in sides.pairs():
                for driver, is_checked in ((with_them, True), (without, False)):
                    for op, rate in driver.ask("round", **order).items():
                        rates = pair[op].ours if is_checked else pair[op].other
                        rates.append(rate * size / 1e9)
            lines += pair.values()
    return lines


def run(sides: Sides, pids: list[int], store: LoopbackStore, show: Callable[[Line], None]) -> None:
    show(measure_idle(pids))
    found = {}
    for load in LOADS:
        found[load] = measure_load(sides, *load)
        for line in found[load]:
            show(line)
    for line in against_one_by_one(found[LOADS[0]], found[LOADS[1]]):
        show(line)
    for batch in (1, 128):
        show(measure_exists(sides, batch))
    for same_host in ("shm", "network"):
        try:
            for line in measure_checksums(sides, same_host, store):
                show(line)
        except Problem as problem:
            print(f"checksums on against off, {same_host}: not measured: {problem}")


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", type=Path, help="a virtual environment that has the original")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=0.3, help="of one measurement")
    parser.add_argument("--json", action="store_true", help="print all pairs as JSON at the end")
    options = parser.parse_args()
    print(f"# {describe(options)}")
    lines: list[Line] = []

    def show(line: Line) -> None:
        lines.append(line)
        print(line.show(), flush=True)

    with ExitStack() as stack:
        loopback = LoopbackStore(nodes=1, capacity_bytes=POOL, transfer=TransferConfig())
        store = stack.enter_context(loopback)
        original = stack.enter_context(Original(options.peer, POOL)) if options.peer else None
        pids = [store.master_pid, *([original.master_pid] if original else [])]
        driver = stack.enter_context(original.driver()) if original else None
        sides = Sides(stack.enter_context(ours(store.master)), driver, options)
        run(sides, pids, store, show)
    if options.json:
        print(json.dumps([asdict(line) for line in lines]))


if __name__ == "__main__":
    main()
