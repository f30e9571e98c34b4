"""Percentiles and spread."""

import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_core.te_bench.figures import coefficient_of_variation, percentile, summarise

values = st.lists(st.floats(0, 1e6), min_size=1, max_size=300)


@given(values=values, share=st.sampled_from([0.5, 0.9, 0.99, 0.999, 1.0]))
def test_a_percentile_is_the_smallest_value_that_enough_do_not_exceed(
    values: list[float], share: float
) -> None:
    found = percentile(sorted(values), share)
    enough = share * len(values) - 1e-9
    assert found in values and sum(value <= found for value in values) >= enough
    assert sum(value < found for value in values) < enough


def test_percentiles_of_a_thousand_are_where_one_expects_them() -> None:
    latency = summarise([float(number) for number in range(1000, 0, -1)])
    assert (latency.p50_s, latency.p90_s, latency.p99_s) == (500, 900, 990)
    assert (latency.p999_s, latency.max_s) == (999, 1000)


def test_a_single_value_is_every_percentile_and_has_no_spread() -> None:
    latency = summarise([3.0])
    assert {latency.p50_s, latency.p90_s, latency.p99_s, latency.p999_s, latency.max_s} == {3.0}
    assert coefficient_of_variation([3.0]) == 0


def test_spread_is_the_deviation_in_shares_of_the_mean() -> None:
    rates = [9.0, 10.0, 11.0]
    assert coefficient_of_variation(rates) == pytest.approx(statistics.stdev(rates) / 10)
    assert coefficient_of_variation([0.0, 0.0]) == 0
