"""How results of te-bench are shown to people."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from mooncake_cli.render import print_table
from mooncake_cli.times import brief
from mooncake_core.te_bench.compare import Comparison
from mooncake_core.te_bench.figures import Latency
from mooncake_core.te_bench.recompute import verdict
from mooncake_core.te_bench.report import (
    CaseResult,
    FaultResult,
    Report,
    SoakResult,
    best_row,
    shares,
)

_COLUMNS = ["load", "GB/s", "base", "op/s", "p50 p90 p99 p99.9, s", "CPU"]


def print_report(report: Report) -> None:
    """Print everything of a run, most important last."""
    initiator = report.initiator
    print(f"{initiator.cpu}, {initiator.cpus} CPUs, {initiator.kernel}")
    for check in report.checks:
        if check.state != "good":
            print(f"warning: {check.name}: {check.finding}", file=sys.stderr)
    for asked, choice in report.choices.items():
        print(choice if choice.startswith(f"{asked}: ") else f"{asked}: {choice}")
    if report.rows:
        _print_rows(report)
    if report.faults:
        _print_faults(report.faults)
    if report.soak is not None:
        _print_soak(report.soak, is_complete=report.is_complete)
    if report.kv is not None and report.rows:
        row = best_row(report.rows)
        print(verdict(report.kv, row.name, row.gb_per_s * 1e9))
    if not report.is_complete:
        print("interrupted: this is what was measured before", file=sys.stderr)


def print_comparison(found: Comparison) -> None:
    """Print both results side by side, and the verdict."""
    rows = [
        (
            row.name,
            f"{row.before_gb_per_s:.2f}",
            f"{row.after_gb_per_s:.2f}",
            f"{row.ratio:.2f}",
            f"{row.spread:.0%}",
            f"{_time(row.before_p99_s)} | {_time(row.after_p99_s)}",
            "slower" if row.is_regression else "",
        )
        for row in found.rows
    ]
    print_table(["row", "A GB/s", "B GB/s", "B/A", "±", "p99 A | B", ""], rows)
    for name, only in (("A", found.only_before), ("B", found.only_after)):
        for row_name in only:
            print(f"only in {name}: {row_name}", file=sys.stderr)
    for difference in found.differences:
        print(f"differs: {difference}", file=sys.stderr)
    if not found.rows:
        return
    slower = len(found.regressions)
    print(
        f"{slower} of {len(found.rows)} rows are slower by more than {found.threshold:.1%} and by "
        "more than ±, the spread of A and B together"
    )


def _print_rows(report: Report) -> None:
    for (way, baseline), rows in _grouped(report.rows).items():
        beside = f", beside {baseline}" if baseline else ""
        print_table(_COLUMNS, [_row(row) for row in rows], title=f"{way}{beside}")
    print(
        "A load is block x batch x threads. GB are 10^9 bytes, ± is the coefficient of variation,"
    )
    print("times are of one batch call, CPU is of both processes. Every byte was verified.")
    for row in report.rows:
        if len(paths := shares(row)) > 1:
            text = ", ".join(f"{path} {share:.0%}" for path, share in paths.items())
            print(f"{row.name}: {text}")
        if row.resent_slices or row.failures:
            print(f"{row.name}: {row.resent_slices} slices resent, {row.failures} failures")


def _print_faults(faults: Sequence[FaultResult]) -> None:
    for fault in faults:
        if not fault.is_noticed:
            print(f"{fault.what}: nothing was tested: {_unnoticed(fault)}")
            continue
        print(
            f"{fault.what}: {_when('noticed', fault.detected_s)}, "
            f"{_when('used again', fault.used_again_s)}; "
            f"longest call {_time(fault.longest_call_s)}; {fault.resent_slices} slices resent"
        )
        print(f"  {fault.error or 'no error'}; every byte of {fault.calls} calls is right")


def _unnoticed(fault: FaultResult) -> str:
    if fault.fault != "lane":
        return f"nobody noticed in {fault.calls} calls"
    return f"the cut fell between two calls, {fault.tries} times; larger blocks or batches help"


def _print_soak(soak: SoakResult, *, is_complete: bool) -> None:
    print(
        f"{soak.seconds:.0f} s: {soak.calls:,} calls, {soak.bytes / 1e9:.2f} GB, every byte "
        f"verified; connections were cut {'once' if soak.cuts == 1 else f'{soak.cuts} times'}"
    )
    shown = soak.moments[:: max(1, len(soak.moments) // 8)]
    rows = [
        (
            f"{moment.at_s:.1f} s",
            f"{moment.initiator.rss_bytes >> 20} | {moment.target.rss_bytes >> 20}",
            f"{moment.initiator.fds} | {moment.target.fds}",
            f"{moment.initiator.sockets} | {moment.target.sockets}",
            str(moment.time_wait),
        )
        for moment in shown
    ]
    columns = ["at", "MiB, here | target", "descriptors", "sockets", "TIME_WAIT"]
    print_table(columns, rows)
    for error in soak.errors:
        print(f"error: {error}")
    for what in soak.grown:
        print(f"grown: {what}")
    if not is_complete:
        print("interrupted: whether anything grows was not seen to the end")
    elif not soak.errors and not soak.grown:
        print("flat: memory, descriptors and sockets did not grow")


def _when(what: str, seconds: float | None) -> str:
    return f"never {what}" if seconds is None else f"{what} after {_time(seconds)}"


def _grouped(rows: Sequence[CaseResult]) -> dict[tuple[str, str], list[CaseResult]]:
    groups: dict[tuple[str, str], list[CaseResult]] = {}
    for row in rows:
        groups.setdefault((row.transport, row.baseline), []).append(row)
    return groups


def _row(row: CaseResult) -> tuple[str, ...]:
    return (
        row.case.load,
        f"{row.gb_per_s:.2f} ±{row.spread:.0%}",
        "-" if row.of_baseline is None else f"{row.of_baseline:.0%}",
        f"{row.ops_per_s / 1e3:.1f}k",
        _times(row.latency),
        f"{row.cpu_s_per_gb:.2f}",
    )


def _times(latency: Latency) -> str:
    return " ".join(map(brief, (latency.p50_s, latency.p90_s, latency.p99_s, latency.p999_s)))


def _time(seconds: float) -> str:
    if seconds < 1e-3:
        return f"{seconds * 1e6:.1f} µs"
    return f"{seconds * 1e3:.1f} ms" if seconds < 1 else f"{seconds:.2f} s"
