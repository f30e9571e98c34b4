"""The master's core alone: key operations a second, and memory an object.

Objects are put in batches, first while there is room, then as many again several times over while
each evicts another. A start and an end are a key operation each. Memory is what the process grew
by, less the key. Each size has a process of its own; rates are of the core's processor time, the
best and the median over the rounds.

    python benchmarks/master.py [--objects 1000000 10000000] [--batch 128] [--nodes 1] [--laps 3]
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
from dataclasses import dataclass
from pathlib import Path

from machine import describe

from mooncake_core.native import _native

ROUNDS = 10
"""Parts of a lap that are timed apart."""
PAGE = 4096


@dataclass(frozen=True, kw_only=True)
class Lap:
    """What it took to put as many objects as there is room for."""

    name: str
    best_ns: float
    """Of processor time a key operation, of the fastest round."""
    median_ns: float
    bytes_an_object: float
    """Beyond the key, at the lap's end."""
    refused: int
    retries: int
    evictions: int


def resident_bytes() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE


def measure(objects: int, options: argparse.Namespace) -> list[Lap]:
    """Fill, then put as many again `laps` times. Runs in a process of its own."""
    before = resident_bytes()
    load = _native.MasterLoad(room_objects=objects, nodes=options.nodes, batch=options.batch)
    laps = []
    for number in range(options.laps + 1):
        times = [load.put(objects // ROUNDS) for _ in range(ROUNDS)]
        costs = [time.cpu_s / max(2 * time.put, 1) * 1e9 for time in times]
        laps.append(
            Lap(
                name="with room" if number == 0 else f"evicting, lap {number}",
                best_ns=min(costs),
                median_ns=statistics.median(costs),
                bytes_an_object=(resident_bytes() - before) / load.objects - load.key_bytes,
                refused=sum(time.refused for time in times),
                retries=sum(time.retries for time in times),
                evictions=load.evictions,
            )
        )
    return laps


def show(objects: int, laps: list[Lap]) -> None:
    print(f"\n{objects:,} objects")
    print(f"{'':18}{'M key op/s':>12}{'best':>8}{'M objects/s':>13}{'bytes/object':>14}  refused")
    for lap in laps:
        rate, best = 1e3 / lap.median_ns, 1e3 / lap.best_ns
        print(
            f"{lap.name:18}{rate:12.2f}{best:8.2f}{rate / 2:13.2f}{lap.bytes_an_object:14.0f}"
            f"  {lap.refused}"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--objects", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--nodes", type=int, default=1)
    parser.add_argument("--laps", type=int, default=3)
    options = parser.parse_args()
    print(describe(options))
    for objects in options.objects:
        with multiprocessing.get_context("spawn").Pool(1) as process:
            show(objects, process.apply(measure, (objects, options)))


if __name__ == "__main__":
    main()
