"""Two results, row by row. Pure."""

from __future__ import annotations

from msgspec import Struct

from mooncake_core.te_bench.plan import Case
from mooncake_core.te_bench.report import CaseResult, Report


class RowRatio(Struct, frozen=True, kw_only=True):
    """One row of both results."""

    case: Case
    name: str
    """The transports that were measured, and the load."""
    before_gb_per_s: float
    after_gb_per_s: float
    ratio: float
    """After over before; above 1 is faster."""
    before_p99_s: float
    after_p99_s: float
    spread: float
    """Of both together: the sum of their coefficients of variation."""
    is_regression: bool


class Comparison(Struct, frozen=True, kw_only=True):
    """What two results have in common, and what not."""

    threshold: float
    rows: tuple[RowRatio, ...]
    differences: tuple[str, ...]
    """Of host and set-up: reasons for which the rows may not be comparable."""
    only_before: tuple[str, ...]
    only_after: tuple[str, ...]

    @property
    def regressions(self) -> tuple[RowRatio, ...]:
        """Rows that are slower by more than the threshold and by more than their spread."""
        return tuple(row for row in self.rows if row.is_regression)


def compare(before: Report, after: Report, threshold: float) -> Comparison:
    """Return how `after` stands to `before`.

    A row is a regression that is slower by more than `threshold`, and by more than its measurements
    differ among themselves.
    """
    old, new = _by_case(before), _by_case(after)
    return Comparison(
        threshold=threshold,
        rows=tuple(_ratio(row, new[case], threshold) for case, row in old.items() if case in new),
        differences=_differences(before, after),
        only_before=tuple(row.name for case, row in old.items() if case not in new),
        only_after=tuple(row.name for case, row in new.items() if case not in old),
    )


def _by_case(report: Report) -> dict[Case, CaseResult]:
    return {row.case: row for row in report.rows}


def _ratio(before: CaseResult, after: CaseResult, threshold: float) -> RowRatio:
    ratio = after.gb_per_s / before.gb_per_s
    spread = before.spread + after.spread
    ways = dict.fromkeys((before.transport, after.transport))
    return RowRatio(
        case=before.case,
        name=f"{' | '.join(ways)} {before.case.load}",
        before_gb_per_s=before.gb_per_s,
        after_gb_per_s=after.gb_per_s,
        ratio=ratio,
        before_p99_s=before.latency.p99_s,
        after_p99_s=after.latency.p99_s,
        spread=spread,
        is_regression=ratio < 1 - max(threshold, spread),
    )


def _differences(before: Report, after: Report) -> tuple[str, ...]:
    found = []
    for side in ("initiator", "target"):
        one, other = getattr(before, side), getattr(after, side)
        for name in one.__struct_fields__:
            if getattr(one, name) != getattr(other, name):
                found.append(f"{side}.{name}: {getattr(one, name)} | {getattr(other, name)}")
    for name in ("seconds", "repeats", "memory", "prepared", "transfer"):
        old, new = getattr(before.config, name), getattr(after.config, name)
        if old != new:
            found.append(f"{name}: {old} | {new}")
    for name in ("is_same_host", "is_complete"):
        if getattr(before, name) != getattr(after, name):
            found.append(f"{name}: {getattr(before, name)} | {getattr(after, name)}")
    old_rows, new_rows = _by_case(before), _by_case(after)
    for case in old_rows.keys() & new_rows.keys():
        ways = old_rows[case].transport, new_rows[case].transport
        if ways[0] != ways[1]:
            found.append(f"{case.load}: {ways[0]} | {ways[1]}")
    return tuple(found)
