"""Results made by hand."""

from typing import Any

from mooncake_core.te_bench.figures import Latency
from mooncake_core.te_bench.options import BenchConfig
from mooncake_core.te_bench.plan import Case
from mooncake_core.te_bench.process import Machine
from mooncake_core.te_bench.report import (
    CaseResult,
    PathShare,
    Report,
    Sample,
    make_result,
)

LATENCY = Latency(p50_s=1e-3, p90_s=2e-3, p99_s=3e-3, p999_s=4e-3, max_s=5e-3)
MACHINE = Machine(
    name="here",
    kernel="Linux 6",
    cpu="some",
    cpus=2,
    memory_bytes=1 << 34,
    python="3.11",
    mooncake="0.1.0",
    topology="abc",
)


def sample(rate: float, **changes: Any) -> Sample:
    whole: dict[str, Any] = {
        **{"seconds": 1.0, "bytes": int(rate), "calls": 10, "latency": LATENCY, "paths": ()},
        **{"initiator_cpu_s": 0.5, "target_cpu_s": 0.25, "baseline_bytes_per_s": None},
        **changes,
    }
    return Sample(**whole)


def result(*samples: Sample, block_bytes: int = 1 << 20) -> CaseResult:
    case = Case(transport="tcp", direction="read", block_bytes=block_bytes, batch=16, threads=1)
    return make_result(case, "tcp", ("plain sockets", 2), samples, LATENCY)


def report(*rows: CaseResult, machine: Machine = MACHINE) -> Report:
    return Report(
        started="2025-01-01T00:00:00+00:00",
        config=BenchConfig(),
        initiator=machine,
        target=MACHINE,
        is_same_host=True,
        choices={},
        checks=(),
        rows=rows,
    )


def path(name: str, size: int, resent: int = 0) -> PathShare:
    return PathShare(path=name, bytes=size, resent_slices=resent, failures=0)
