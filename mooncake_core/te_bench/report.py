"""What a benchmark found, as it is printed and kept. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta, Struct

from mooncake_core.errors import ConfigError
from mooncake_core.te_bench.figures import Latency, coefficient_of_variation
from mooncake_core.te_bench.options import BenchConfig
from mooncake_core.te_bench.plan import Case
from mooncake_core.te_bench.process import Machine, Usage
from mooncake_core.te_bench.recompute import KvPreset

FORMAT = "mooncake te-bench 1"
GB = 1e9


State = Literal["good", "doubtful", "bad"]


class Check(Struct, frozen=True, kw_only=True):
    """One look at the host before anything is measured."""

    name: str
    state: State
    finding: str


class PathShare(Struct, frozen=True, kw_only=True):
    """What one path did meanwhile."""

    path: str
    """Transport and addresses."""
    bytes: int
    resent_slices: int
    failures: int


class Sample(Struct, frozen=True, kw_only=True):
    """One measurement."""

    seconds: float
    bytes: int
    calls: int
    latency: Latency
    initiator_cpu_s: float
    target_cpu_s: float
    baseline_bytes_per_s: float | None
    """Measured next to it; None: not asked for."""
    paths: tuple[PathShare, ...]

    @property
    def bytes_per_s(self) -> float:
        """Over all threads."""
        return self.bytes / self.seconds


class CaseResult(Struct, frozen=True, kw_only=True):
    """All measurements of one row, and what they come to."""

    case: Case
    transport: Literal["shm", "tcp"]
    """That it was."""
    baseline: str
    """What stands beside it; empty: nothing."""
    baseline_streams: int
    """Threads or connections of the baseline; 0: there is none."""
    samples: tuple[Sample, ...]
    latency: Latency
    """Over the calls of all measurements."""
    gb_per_s: Annotated[float, Meta(gt=0)]
    """Median; GB are 10^9 bytes."""
    ops_per_s: float
    """Median; pieces, not calls."""
    spread: float
    """Coefficient of variation of the rates."""
    of_baseline: float | None
    """Median of the ratios, each of two measurements made next to each other."""
    cpu_s_per_gb: float
    """Of both processes."""
    initiator_cpu_s_per_gb: float
    resent_slices: int
    failures: int

    @property
    def name(self) -> str:
        """What people know it by: the transport that was measured, and the load."""
        return f"{self.transport} {self.case.load}"


class FaultResult(Struct, frozen=True, kw_only=True):
    """One thing that was broken, and what became of it."""

    fault: str
    """lane, path or peer."""
    what: str
    """That was cut or killed."""
    detected_s: float | None
    """Until the engine or its caller knew; None: nothing was noticed, so nothing was tested."""
    error: str
    """That a caller got; empty: none did."""
    longest_call_s: float
    """Of the calls after the fault."""
    used_again_s: float | None
    """Until bytes went that way again, counted from when they could."""
    resent_slices: int
    calls: int
    """Whose bytes were verified, one by one."""
    tries: int = 1
    """Until a cut fell into a call, or that was given up."""

    @property
    def is_noticed(self) -> bool:
        """Whether anything was tested: the engine or its caller knew of it."""
        return self.detected_s is not None or self.error != ""


class Moment(Struct, frozen=True, kw_only=True):
    """What a soak's processes had at one time."""

    at_s: float
    initiator: Usage
    target: Usage
    time_wait: int
    """TCP sockets of the engine that wait for their number to be free again."""
    recent_cuts: int
    """In the minute before; each leaves some of these sockets."""


class SoakResult(Struct, frozen=True, kw_only=True):
    """What a soak did and whether anything grew."""

    seconds: float
    calls: int
    bytes: int
    cuts: int
    errors: tuple[str, ...]
    moments: tuple[Moment, ...]
    grown: tuple[str, ...]
    """What is not flat; empty: everything is."""


class Report(Struct, frozen=True, kw_only=True):
    """Everything of one run."""

    format: str = FORMAT
    started: str
    """UTC, ISO 8601."""
    config: BenchConfig
    initiator: Machine
    target: Machine
    is_same_host: bool
    choices: dict[str, str]
    """Transport asked for -> what was taken and why."""
    checks: tuple[Check, ...]
    rows: tuple[CaseResult, ...] = ()
    kv: KvPreset | None = None
    faults: tuple[FaultResult, ...] = ()
    soak: SoakResult | None = None
    is_complete: bool = True
    """False: it was interrupted, and holds what was done before."""

    @property
    def has_results(self) -> bool:
        """Whether anything was measured."""
        return bool(self.rows or self.faults or self.soak)

    @property
    def is_bad(self) -> bool:
        """Whether a fault tested nothing or was not survived, or a soak found something."""
        is_lost = any(
            not fault.is_noticed or (fault.error and fault.fault != "peer") for fault in self.faults
        )
        return is_lost or (self.soak is not None and bool(self.soak.errors or self.soak.grown))


def make_result(
    case: Case,
    transport: Literal["shm", "tcp"],
    baseline: tuple[str, int],
    samples: tuple[Sample, ...],
    latency: Latency,
) -> CaseResult:
    """Return what at least one sample of a case comes to.

    Args:
        case: that was measured.
        transport: that it was.
        baseline: its name and streams.
        samples: in the order in which they were made.
        latency: over the calls of all of them.
    """
    rates = [sample.bytes_per_s for sample in samples]
    gigabytes = sum(sample.bytes for sample in samples) / GB
    own_s = sum(sample.initiator_cpu_s for sample in samples)
    other_s = sum(sample.target_cpu_s for sample in samples)
    ratios = [
        sample.bytes_per_s / sample.baseline_bytes_per_s
        for sample in samples
        if sample.baseline_bytes_per_s
    ]
    paths = [path for sample in samples for path in sample.paths]
    return CaseResult(
        case=case,
        transport=transport,
        baseline=baseline[0],
        baseline_streams=baseline[1],
        samples=samples,
        latency=latency,
        gb_per_s=statistics.median(rates) / GB,
        ops_per_s=statistics.median(rates) / case.block_bytes,
        spread=coefficient_of_variation(rates),
        of_baseline=statistics.median(ratios) if ratios else None,
        cpu_s_per_gb=(own_s + other_s) / gigabytes,
        initiator_cpu_s_per_gb=own_s / gigabytes,
        resent_slices=sum(path.resent_slices for path in paths),
        failures=sum(path.failures for path in paths),
    )


def shares(result: CaseResult) -> dict[str, float]:
    """Return path -> its share of the bytes of all samples, the largest first."""
    totals: dict[str, int] = {}
    for sample in result.samples:
        for path in sample.paths:
            totals[path.path] = totals.get(path.path, 0) + path.bytes
    whole = sum(totals.values())
    ordered = sorted(totals.items(), key=lambda item: -item[1])
    return {path: count / whole for path, count in ordered} if whole else {}


def best_row(rows: Sequence[CaseResult]) -> CaseResult:
    """Return the fastest row that reads, or where none does, the fastest."""
    reading = [row for row in rows if row.case.direction == "read"]
    return max(reading or rows, key=lambda row: row.gb_per_s)


def read_report(path: Path) -> Report:
    """Return a report that was kept with --json.

    Raises:
        ConfigError: the file cannot be read or holds something else.
    """
    try:
        report = msgspec.json.decode(path.read_bytes(), type=Report)
    except OSError as error:
        raise ConfigError(f"{path}: cannot read it: {error.strerror}") from error
    except msgspec.DecodeError as error:
        raise ConfigError(f"{path}: not what `te-bench --json` prints: {error}") from error
    if report.format != FORMAT:
        raise ConfigError(f"{path}: its format is {report.format!r}; {FORMAT!r} is read here")
    return report
