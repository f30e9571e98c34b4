"""The sweep: each row is verified first, then measured in turn with its baseline."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator

from msgspec import Struct

from mooncake_core.errors import ChecksumMismatch
from mooncake_core.te_bench.baseline import Baseline, Memcpy, Sockets
from mooncake_core.te_bench.control import Control
from mooncake_core.te_bench.figures import summarise
from mooncake_core.te_bench.measure import Limits, Measurement, run_threads
from mooncake_core.te_bench.options import BenchConfig
from mooncake_core.te_bench.plan import Case, make_layout
from mooncake_core.te_bench.report import CaseResult, PathShare, Sample, make_result
from mooncake_core.te_bench.row import Row
from mooncake_core.te_bench.session import PathCounter, Session

VERIFY_ROUNDS = 2
Say = Callable[[str], None]


class Sweep:
    """Measures rows one after the other; what was measured is in `results` also after a Ctrl-C.

    Args:
        control: of the target.
        config: of the benchmark.
        say: told, in a few words, what is under way.
    """

    def __init__(self, control: Control, config: BenchConfig, say: Say) -> None:
        self.results: list[CaseResult] = []
        self.choices: dict[str, str] = {}
        """Transport asked for -> what is measured and why."""
        self._control = control
        self._config = config
        self._say = say
        self._seeds = itertools.count(2, 2)

    def run(self, cases: Iterable[Case]) -> None:
        """Measure every case.

        Raises:
            ChecksumMismatch: a byte is not what it should be; the message names row and byte.
            ConfigError: a transport does not lead to the target.
            TransferError: a batch failed.
        """
        for transport, group in itertools.groupby(cases, key=lambda case: case.transport):
            with Session(self._control, transport, self._config.transfer) as session:
                self.choices[transport] = session.why
                for case in group:
                    self._measure(session, case)

    def _measure(self, session: Session, case: Case) -> None:
        layout = make_layout(case, self._config.memory_bytes)
        is_prepared = self._config.prepared
        with Row(session.engine, self._control, case, layout, is_prepared=is_prepared) as row:
            self._say(f"{case.name}: verifying")
            for _ in range(VERIFY_ROUNDS):
                self._verified(session, row, Limits(rounds=1))
            if self._config.warm_up_s:
                self._verified(session, row, Limits(seconds=self._config.warm_up_s))
            baseline = None if self._config.no_baseline else self._baseline(session, row)
            samples: list[Sample] = []
            latencies_s: list[float] = []
            try:
                for sample, more_s in self._samples(session, row, baseline):
                    samples.append(sample)
                    latencies_s += more_s
            finally:
                if samples:
                    what = ("", 0) if baseline is None else (baseline.what, baseline.streams)
                    summary = summarise(latencies_s)
                    made = make_result(case, session.transport, what, tuple(samples), summary)
                    self.results.append(made)

    def _samples(
        self, session: Session, row: Row, baseline: Baseline | None
    ) -> Iterator[tuple[Sample, list[float]]]:
        """Yield each measurement, made next to one of the baseline, and its latencies."""
        for repeat in range(self._config.repeats):
            self._say(f"{row.case.name}: {repeat + 1} of {self._config.repeats}")
            beside = None if baseline is None else baseline.rate(self._config.seconds)
            done = self._verified(session, row, Limits(seconds=self._config.seconds))
            yield done.sample(row.case, beside), done.measured.latencies_s

    def _verified(self, session: Session, row: Row, limits: Limits) -> Done:
        """Run the row with bytes of its own, and look at each of them afterwards."""
        seed = next(self._seeds)
        for strand in row.strands:
            strand.arm(self._control, seed)
        paths, before_s = PathCounter(session.engine), session.target_cpu_s()
        measured = run_threads(row, limits)
        target_cpu_s, shares = session.target_cpu_s() - before_s, paths.shares()
        _refuse_miscount(row.case, measured, shares)
        for strands, calls in zip(row.workers, measured.calls, strict=True):
            for strand, count in zip(strands, calls, strict=True):
                strand.check(self._control, seed, count)
        return Done(measured=measured, target_cpu_s=target_cpu_s, paths=shares)

    def _baseline(self, session: Session, row: Row) -> Baseline:
        if session.transport == "shm":
            return Memcpy(row.case, row.layout)
        self._say(f"{row.case.name}: how many plain streams are best")
        endpoint = self._control.welcome.sockets
        return Sockets(endpoint, row.case, row.layout, self._config.seconds)


def _refuse_miscount(case: Case, measured: Measurement, paths: tuple[PathShare, ...]) -> None:
    """A call that moved nothing is not seen in memory that others have written before."""
    asked = sum(map(sum, measured.calls)) * case.batch_bytes
    counted = sum(path.bytes for path in paths)
    if counted != asked:
        raise ChecksumMismatch(
            f"{case.name}: the paths have moved {counted:,} bytes, and calls {asked:,}"
        )


class Done(Struct, frozen=True, kw_only=True):
    """One run whose bytes were right."""

    measured: Measurement
    target_cpu_s: float
    paths: tuple[PathShare, ...]

    def sample(self, case: Case, baseline_bytes_per_s: float | None) -> Sample:
        """Return what is kept of it."""
        calls = sum(map(sum, self.measured.calls))
        return Sample(
            seconds=self.measured.seconds,
            bytes=calls * case.batch_bytes,
            calls=calls,
            latency=summarise(self.measured.latencies_s),
            initiator_cpu_s=self.measured.cpu_s,
            target_cpu_s=self.target_cpu_s,
            baseline_bytes_per_s=baseline_bytes_per_s,
            paths=self.paths,
        )
