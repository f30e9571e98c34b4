"""How results of `mooncake store bench` are shown to people."""

from __future__ import annotations

import sys

from mooncake_cli.render import print_table
from mooncake_cli.times import brief
from mooncake_core.store_bench.report import OperationResult, RowResult, StoreReport
from mooncake_core.te_bench.figures import Latency

_COLUMNS = ["value x batch x threads", "op/s", "GB/s", "hits", "p50 p90 p99 p99.9 max, s"]


def print_report(report: StoreReport) -> None:
    """Print everything of a run."""
    machine, config = report.machine, report.config
    print(f"{machine.cpu}, {machine.cpus} CPUs, {machine.kernel}")
    if report.rows:
        print_table(_COLUMNS, [line for row in report.rows for line in _lines(row)])
        clients = "1 client" if config.clients == 1 else f"{config.clients} clients"
        print(
            f"Of {clients}, {config.mode}, {config.keys} keys, {config.choice}. "
            "op/s count keys, GB are 10^9 bytes,"
        )
        print("± is the coefficient of variation, times are of one call.")
        if config.verify:
            print("Every byte that was read was looked at.")
    for row in report.rows:
        _print_remarks(row)
    if not report.is_complete:
        print("it did not run to its end: this is what was measured before", file=sys.stderr)


def _lines(row: RowResult) -> list[tuple[str, ...]]:
    lines = [_line(row, result) for result in row.operations]
    if row.case.operation == "mixed" or not lines:
        return [(row.case.name, "", "", "", ""), *lines]
    return lines


def _line(row: RowResult, result: OperationResult) -> tuple[str, ...]:
    case = row.case
    is_mixed = case.operation == "mixed"
    return (
        case.name.replace(case.operation, f"  {result.operation}" if is_mixed else case.operation),
        f"{_rate(result.ops_per_s)} ±{result.spread:.0%}",
        f"{result.gb_per_s:.2f}" if result.operation != "exists" else "-",
        f"{result.hit_ratio:.1%}",
        _times(result.latency),
    )


def _print_remarks(row: RowResult) -> None:
    for error, count in row.failures.items():
        print(f"{row.case.name}: {count} calls failed: {error}")
    if row.evictions:
        print(f"{row.case.name}: the store evicted {row.evictions} values meanwhile")
    for cause, count in row.read_faults.items():
        print(f"{row.case.name}: {count} reads missed because what they found was {cause}")
    if row.wrong:
        print(f"{row.case.name}: {row.wrong} values were wrong: {row.first_wrong}", file=sys.stderr)


def _rate(per_s: float) -> str:
    return f"{per_s:,.0f}" if per_s < 9_999.5 else f"{per_s / 1e3:,.1f}k"


def _times(latency: Latency) -> str:
    seconds = (latency.p50_s, latency.p90_s, latency.p99_s, latency.p999_s, latency.max_s)
    return " ".join(map(brief, seconds))
