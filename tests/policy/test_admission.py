"""Admission policies against sets and clocks."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mooncake_core.native import _native, native_errors


def test_all_admits_all():
    policy = _native.Admission("all")
    assert all(policy.admit(key, 1 << 20, now_s=0.0) for key in range(100))


def test_a_key_is_admitted_at_its_second_put_and_from_then_on():
    policy = _native.Admission("second-put", window_s=10, keys=1000)
    assert [policy.admit(7, 64, now_s=float(at)) for at in range(4)] == [False, True, True, True]


def test_a_refused_put_is_remembered_for_a_window_and_forgotten_after_two():
    for first_s, second_s, admitted in [(0, 9.9, True), (9, 18.9, True), (0, 20, False)]:
        policy = _native.Admission("second-put", window_s=10, keys=1000)
        assert not policy.admit(7, 64, now_s=first_s)
        assert policy.admit(7, 64, now_s=second_s) is admitted, (first_s, second_s)


def test_as_many_refused_puts_as_were_asked_for_are_remembered():
    policy = _native.Admission("second-put", window_s=1e9, keys=1000)
    keys = list(range(5000))
    admitted_at_once = sum(policy.admit(key, 64, now_s=0) for key in keys)
    assert admitted_at_once <= 25
    assert all(policy.admit(key, 64, now_s=0) for key in keys[-1000:])
    forgotten = [not policy.admit(key, 64, now_s=0) for key in keys[:2000]]
    assert sum(forgotten) >= 1980


def test_hashes_that_differ_in_their_high_bits_only_are_told_apart():
    policy = _native.Admission("second-put", keys=1000)
    assert sum(policy.admit(key << 48, 64, now_s=0) for key in range(1, 1000)) <= 5


PUTS = st.lists(st.tuples(st.integers(0, 8), st.floats(0, 6)), max_size=80)


@given(puts=PUTS)
@settings(max_examples=150, deadline=None)
def test_it_errs_only_between_one_window_and_two(puts):
    """With few keys there is no collision: between the bounds either answer is right."""
    policy, refused_s, now_s = _native.Admission("second-put", window_s=10, keys=4096), {}, 0.0
    for key, pause_s in puts:
        now_s += pause_s
        age_s = now_s - refused_s.get(key, -1e9)
        admitted = policy.admit(key, 64, now_s=now_s)
        assert admitted or age_s >= 10
        assert not admitted or age_s <= 20
        if not admitted:
            refused_s[key] = now_s


def test_false_admissions_are_rare_when_the_filters_are_full():
    rng = random.Random(3)
    policy = _native.Admission("second-put", window_s=1e9, keys=1 << 14)
    for _ in range(1 << 15):
        policy.admit(rng.getrandbits(64), 64, now_s=0)
    wrong = sum(policy.admit(rng.getrandbits(64), 64, now_s=0) for _ in range(10_000))
    assert wrong <= 100


def test_an_unknown_policy_and_odd_options_are_refused():
    known = "'some' is not known; there are: all, second-put"
    with pytest.raises(ValueError, match=known), native_errors:
        _native.Admission("some")
    for options in ({"window_s": 0}, {"window_s": float("nan")}, {"keys": 0}, {"keys": 1 << 30}):
        with pytest.raises(ValueError, match="window_s must be above 0"), native_errors:
            _native.Admission("second-put", **options)
    assert _native.admission_names() == ["all", "second-put"]
