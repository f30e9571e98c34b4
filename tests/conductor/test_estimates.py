"""Estimators learn what is so, and are not led astray."""

import random

import pytest

from mooncake_core.conductor.estimates import LoadModel, PrefillCost, PrefillModel, StepTimes


def test_an_estimate_starts_at_the_calibrated_rate() -> None:
    assert PrefillModel(1000.0).cost.seconds(1000, 0) == pytest.approx(1.0, rel=0.1)
    assert PrefillModel(0.0).cost.seconds(1000, 0) > 0


@pytest.mark.parametrize("speed", [0.5, 1.0, 3.0])
def test_prefill_times_are_learnt_within_a_fifth(speed: float) -> None:
    rng = random.Random(4)
    truth = PrefillCost(base_s=0.05, token_s=2.5e-3 / speed, square_s=3e-7 / speed)
    model = PrefillModel(400.0)
    for _ in range(60):
        tokens = rng.randrange(100, 4000)
        reused = 256 * rng.randrange(0, tokens // 256 + 1) if tokens > 300 else 0
        model.observe(tokens, reused, truth.seconds(tokens, reused) * rng.uniform(0.95, 1.05))
    for tokens, reused in [(300, 0), (2000, 0), (2000, 1792), (4000, 0)]:
        estimate = model.cost.seconds(tokens, reused)
        assert estimate == pytest.approx(truth.seconds(tokens, reused), rel=0.2)


def test_one_stall_does_not_ruin_an_estimate() -> None:
    model = PrefillModel(1000.0)
    for _ in range(20):
        model.observe(1000, 0, 1.0)
    model.observe(1000, 0, 500.0)
    assert model.cost.seconds(1000, 0) < 1.6


@pytest.mark.parametrize("took_s", [0.0, 1e-12, 1e12])
def test_nonsense_leaves_estimates_positive_and_finite(took_s: float) -> None:
    model = PrefillModel(1000.0)
    for _ in range(100):
        model.observe(1000, 512, took_s)
    assert 0 < model.cost.seconds(1000, 512) < 1e3


def test_load_times_follow_what_is_seen() -> None:
    loads = LoadModel(1e9)
    for _ in range(50):
        loads.observe(10**8, 1.0)
    assert loads.byte_s == pytest.approx(1e-8, rel=0.1)
    for _ in range(200):
        loads.observe(10**8, 0.0)
    assert 0 < loads.byte_s < 1e-10
    loads.observe(0, 5.0)
    assert loads.byte_s < 1e-10


def test_step_times_are_known_by_batch_size_and_grow_beyond() -> None:
    steps = StepTimes()
    assert steps.seconds(4) == 0.0
    steps = steps.observed(2, 0.1).observed(8, 0.2)
    assert steps.seconds(2) == pytest.approx(0.1)
    assert steps.seconds(1) == pytest.approx(0.1)
    assert steps.seconds(10) == pytest.approx(0.2 * (1 + 2 * 0.0187))
    assert steps.observed(0, 0.0) == steps
