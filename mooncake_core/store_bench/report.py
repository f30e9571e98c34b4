"""What a benchmark found, as it is printed and kept. Pure."""

from __future__ import annotations

import statistics
from array import array
from collections import Counter
from collections.abc import Iterable, Sequence

from msgspec import Struct

from mooncake_core.store_bench.messages import Measured, ThreadDone
from mooncake_core.store_bench.options import StoreBenchConfig
from mooncake_core.store_bench.plan import Case
from mooncake_core.store_bench.tally import Count
from mooncake_core.te_bench.figures import Latency, coefficient_of_variation, summarise
from mooncake_core.te_bench.process import Machine

FORMAT = "mooncake store bench 1"
GB = 1e9


class Rate(Struct, frozen=True, kw_only=True):
    """One operation in one measurement, over all threads of all clients."""

    ops_per_s: float
    """Keys, not calls, over the time that threads spent in calls."""
    gb_per_s: float
    """Of values that were stored or found; GB are 10^9 bytes."""


class OperationResult(Struct, frozen=True, kw_only=True):
    """One operation of a row."""

    operation: str
    calls: int
    keys: int
    hits: int
    """Keys that were stored, found, or there. What is missing of a put was there already."""
    hit_ratio: float
    ops_per_s: float
    """Median."""
    gb_per_s: float
    """Median."""
    spread: float
    """Coefficient of variation of ops_per_s."""
    latency: Latency
    """Of one call, over the calls of all measurements."""
    samples: tuple[Rate, ...]


class RowResult(Struct, frozen=True, kw_only=True):
    """All measurements of one row, and what they come to."""

    case: Case
    operations: tuple[OperationResult, ...]
    """Two of mixed; none if every call failed."""
    failures: dict[str, int]
    """Name of the error -> calls that raised it."""
    wrong: int
    """Values that were read and of which a byte was wrong; looked for with verify alone."""
    first_wrong: str
    """What was wrong with the first."""
    read_faults: dict[str, int]
    """Reads that missed although the key was found, by cause. corrupt: found by the checksums."""
    evictions: int
    """Of the whole store meanwhile."""

    @property
    def is_bad(self) -> bool:
        """A byte was wrong, whoever found it, or nothing succeeded."""
        is_corrupt = bool(self.wrong or self.read_faults.get("corrupt"))
        return is_corrupt or not self.operations


class StoreReport(Struct, frozen=True, kw_only=True):
    """Everything about one run."""

    started: str
    """ISO 8601, UTC."""
    config: StoreBenchConfig
    machine: Machine
    """Of the clients."""
    rows: tuple[RowResult, ...]
    is_complete: bool
    """False: ended by an error or a signal; this is what was measured before."""
    format: str = FORMAT

    @property
    def is_bad(self) -> bool:
        """See RowResult."""
        return any(row.is_bad for row in self.rows)


def make_row(
    case: Case, measured: Sequence[Sequence[Measured]], beside: Sequence[Sequence[Measured]]
) -> RowResult:
    """Return what the measurements of a row come to.

    Args:
        case: that was measured.
        measured: for each measurement the answer of each client.
        beside: the same for what was not measured: the warm-up, and the look at the end.
    """
    rounds = [*measured, *beside]
    answers = [answer for one in rounds for answer in one]
    threads = [thread for answer in answers for thread in answer.threads]
    samples = [[thread for answer in one for thread in answer.threads] for one in measured]
    names = dict.fromkeys(name for one in samples for thread in one for name in thread.counts)
    return RowResult(
        case=case,
        operations=tuple(_operation(name, case, samples) for name in names),
        failures=_added(thread.failures for thread in threads),
        wrong=sum(thread.wrong for thread in threads),
        first_wrong=next((one.first_wrong for one in threads if one.first_wrong), ""),
        read_faults=_added(answer.read_faults for answer in answers),
        # Each client sees those of the whole store.
        evictions=sum(max(each.evictions for each in one) for one in rounds),
    )


def _operation(name: str, case: Case, samples: Sequence[Sequence[ThreadDone]]) -> OperationResult:
    counts = [one.counts[name] for sample in samples for one in sample if name in one.counts]
    rates = tuple(_rate(name, case, sample) for sample in samples)
    keys, hits = (sum(getattr(count, each) for count in counts) for each in ("keys", "hits"))
    return OperationResult(
        operation=name,
        calls=sum(count.calls for count in counts),
        keys=keys,
        hits=hits,
        hit_ratio=hits / keys,
        ops_per_s=statistics.median(rate.ops_per_s for rate in rates),
        gb_per_s=statistics.median(rate.gb_per_s for rate in rates),
        spread=coefficient_of_variation([rate.ops_per_s for rate in rates]),
        latency=summarise(_latencies(counts)),
        samples=rates,
    )


def _rate(name: str, case: Case, threads: Iterable[ThreadDone]) -> Rate:
    """Return the sum over threads of what each did in the time that it spent in calls."""
    none = Count()
    parts = [(thread.counts.get(name, none), thread.called_s) for thread in threads]
    moved = 0 if name == "exists" else case.size_bytes
    return Rate(
        ops_per_s=sum(count.keys / called_s for count, called_s in parts if called_s),
        gb_per_s=sum(count.hits * moved / called_s for count, called_s in parts if called_s) / GB,
    )


def _latencies(counts: Iterable[Count]) -> array[float]:
    seconds = array("d")
    for count in counts:
        seconds.frombytes(count.latencies)
    return seconds


def _added(parts: Iterable[dict[str, int]]) -> dict[str, int]:
    total: Counter[str] = Counter()
    for part in parts:
        total.update(part)
    return {name: count for name, count in total.items() if count}
