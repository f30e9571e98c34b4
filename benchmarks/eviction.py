"""What eviction costs, and whether it keeps the right values.

Values of ten times the pool are put back to back: failures, how fast beside a pool in which all of
them fit, and the p99 of one put in both. Each pair is one measurement of the small pool, which is
full when it begins, and of the large one, which is empty, right after each other; then of the
original with as small a pool, which runs all the time but is used alone. Then keys are got by
Zipf's law and put where they miss: the hit ratio beside that of a plain LRU with as many bytes and
the same accesses, and which share of what the LRU holds in the end is there. Nothing else should
run meanwhile.

    python benchmarks/eviction.py [--peer DIR] [--pairs 9] [--json]
"""

from __future__ import annotations

import argparse
import json
import statistics
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path

from machine import describe
from store_processes import Driver, Original, ours

from mooncake_core.config import TransferConfig
from mooncake_core.store_bench.loopback import LoopbackStore

KIB, MIB = 1 << 10, 1 << 20
POOL = 64 * MIB
LARGE_POOL = 1 << 30
TIMES = 10
LOADS = [(1 * MIB, 1), (1 * MIB, 4), (64 * KIB, 1), (64 * KIB, 4)]
SURVIVORS = [(1 * MIB, 6_000), (64 * KIB, 30_000)]
"""Size of a value and accesses; there are four times as many keys as fit."""

Answers = list[dict[str, float]]


@dataclass
class Storms:
    """Puts of one size by so many threads, pair by pair."""

    size_bytes: int
    threads: int
    evicting: Answers = field(default_factory=list)
    fitting: Answers = field(default_factory=list)
    original: Answers = field(default_factory=list)

    def show(self) -> str:
        """Return failures of all pairs, medians, and the ratio's median, least and most."""
        ratios = [a["put"] / b["put"] for a, b in zip(self.evicting, self.fitting, strict=True)]
        text = (
            f"{self.size_bytes // KIB:5} KiB  {self.threads}  {_sum(self.evicting):8.0f}"
            f"  {_rate(self, self.evicting):8.3f}  {_rate(self, self.fitting):8.3f}"
            f"  {statistics.median(ratios):5.2f} ({min(ratios):.2f}, {max(ratios):.2f})"
            f"  {_p99_ms(self.evicting):8.3f}  {_p99_ms(self.fitting):8.3f}"
        )
        if not self.original:
            return text
        puts = TIMES * POOL // self.size_bytes * len(self.original)
        return f"{text}  {_sum(self.original):.0f} of {puts}"


def _sum(answers: Answers) -> float:
    return sum(answer["failures"] for answer in answers)


def _rate(storms: Storms, answers: Answers) -> float:
    return statistics.median(answer["put"] for answer in answers) * storms.size_bytes / 1e9


def _p99_ms(answers: Answers) -> float:
    return statistics.median(answer["p99_s"] for answer in answers) * 1e3


def measure_storms(
    small: Driver, large: Driver, original: Driver | None, load: tuple[int, int], pairs: int
) -> Storms:
    size, threads = load
    storms = Storms(size, threads)
    order = {"size": size, "count": TIMES * POOL // size, "threads": threads}
    small.ask("storm", keep=True, **order)  # full, and both are warm
    large.ask("storm", keep=False, **order)
    for _ in range(pairs):
        storms.evicting.append(small.ask("storm", keep=True, **order))
        storms.fitting.append(large.ask("storm", keep=False, **order))
        if original is not None:
            storms.original.append(original.ask("storm", keep=False, **order))
    return storms


def show_survivors(small: Driver, size: int, accesses: int, repeats: int) -> Answers:
    answers = [
        small.ask(
            "survive", size=size, pool=POOL, keys=4 * POOL // size, accesses=accesses, seed=seed
        )
        for seed in range(repeats)
    ]
    shares = [answer["hits"] / answer["lru_hits"] for answer in answers]
    hits, lru, survived = (
        statistics.median(answer[name] for answer in answers)
        for name in ("hits", "lru_hits", "survived")
    )
    print(
        f"{size // KIB:5} KiB: hit ratio {hits:.3f}, LRU {lru:.3f}, of it "
        f"{statistics.median(shares):.3f} ({min(shares):.3f}, {max(shares):.3f}); of what the LRU "
        f"holds in the end {survived:.1%} is there; failures {_sum(answers):.0f}",
        flush=True,
    )
    return answers


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--peer", type=Path, help="a virtual environment that has the original")
    parser.add_argument("--pairs", type=int, default=9)
    parser.add_argument("--json", action="store_true", help="print all answers as JSON at the end")
    options = parser.parse_args()
    print(f"# {describe(options)}")
    with ExitStack() as stack:
        small, large = (
            stack.enter_context(
                LoopbackStore(nodes=1, capacity_bytes=pool, transfer=TransferConfig())
            )
            for pool in (POOL, LARGE_POOL)
        )
        peer = stack.enter_context(Original(options.peer, POOL)) if options.peer else None
        evicting = stack.enter_context(ours(small.master))
        fitting = stack.enter_context(ours(large.master))
        original = stack.enter_context(peer.driver()) if peer else None
        print("value  threads  failures  evicting, fitting GB/s  ratio  p99 of both, ms  original")
        found = []
        for load in LOADS:
            found.append(measure_storms(evicting, fitting, original, load, options.pairs))
            print(found[-1].show(), flush=True)
        survivors = {
            size: show_survivors(evicting, size, accesses, min(3, options.pairs))
            for size, accesses in SURVIVORS
        }
    if options.json:
        print(json.dumps({"storms": [asdict(each) for each in found], "survivors": survivors}))


if __name__ == "__main__":
    main()
