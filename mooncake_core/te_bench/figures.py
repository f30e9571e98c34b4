"""Percentiles and spread. Pure."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence

from msgspec import Struct


class Latency(Struct, frozen=True, kw_only=True):
    """How long one batch call took, in seconds."""

    p50_s: float
    p90_s: float
    p99_s: float
    p999_s: float
    max_s: float


def percentile(ordered: Sequence[float], share: float) -> float:
    """Return the smallest value that at least `share` of the ascending values do not exceed."""
    assert ordered and 0 < share <= 1, (len(ordered), share)
    # A product such as 0.999 * 1000 may come out a hair above the whole number that it is.
    return ordered[max(0, math.ceil(share * len(ordered) - 1e-9) - 1)]


def summarise(latencies_s: Sequence[float]) -> Latency:
    """Return the percentiles of at least one latency."""
    ordered = sorted(latencies_s)
    return Latency(
        p50_s=percentile(ordered, 0.5),
        p90_s=percentile(ordered, 0.9),
        p99_s=percentile(ordered, 0.99),
        p999_s=percentile(ordered, 0.999),
        max_s=ordered[-1],
    )


def coefficient_of_variation(values: Sequence[float]) -> float:
    """Return the sample standard deviation over the mean; 0 of a single value."""
    if len(values) < 2:
        return 0.0
    mean = statistics.fmean(values)
    return statistics.stdev(values) / mean if mean else 0.0
