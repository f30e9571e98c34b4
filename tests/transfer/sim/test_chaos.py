"""Links that slow down, stall, reset and come back at random, under batches of all kinds.

Each case is one seed; a failure names the command that runs it again.
"""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.transfer.sim.driver import ALL, Batch, World

CHAOS_S = 8.0


def chaotic_world(slice_bytes: int, rng: random.Random) -> World:
    """Draw a network, some of it odd but all of it legal."""
    rates = [10 ** rng.uniform(4.8, 9.7) for _ in range(rng.choice([1, 2, 2, 3, 4, 8]))]
    if rng.random() < 0.5:
        rates = [rates[0]] * len(rates)
    world = World(
        rates,
        seed=rng.getrandbits(32),
        latency_s=10 ** rng.uniform(-5, -2),
        slice_bytes=slice_bytes,
    )
    for link in world.links:
        link.jitter_s = rng.choice([0.0, 1e-4, 2e-3])
        link.burst = link.tokens = rng.choice([0.0, 1e5])
    return world


def plan_faults(world: World, rng: random.Random) -> None:
    for index, link in enumerate(world.links):
        rate, at = link.rate, rng.uniform(0, 3)
        while at < CHAOS_S:
            change = rng.choice(["cut", "reset", "slow", "stall"])
            back_s = at + rng.choice([0.05, 0.2, 0.5, 2.0])
            if change == "slow":
                world.events.at(at, lambda link=link, rate=rate: link.set_rate(rate / 10))
            else:
                is_reset = change == "reset"
                world.events.at(
                    at, lambda index=index, is_reset=is_reset: world.cut(index, is_reset=is_reset)
                )
            world.events.at(back_s, lambda link=link, rate=rate: link.set_rate(rate))
            at = back_s + rng.uniform(0, 4)


def plan_batches(world: World, slice_bytes: int, rng: random.Random) -> list[Batch]:
    batches: list[Batch] = []
    total = sum(link.rate for link in world.links)

    def submit() -> None:
        near = rng.choice([ALL, rng.getrandbits(len(world.links))])
        size = min(int(total * 10 ** rng.uniform(-5, 0.3)), 1000 * slice_bytes) + 1
        batch = world.submit(size, is_background=rng.random() < 0.3, near=near)
        batch.sees_progress = rng.random() < 0.7
        batches.append(batch)

    for _ in range(rng.randint(1, 12)):
        world.events.at(rng.uniform(0, CHAOS_S), submit)
    return batches


def run_case(seed: int) -> None:
    rng = random.Random(seed)
    slice_bytes = rng.choice([10_000, 1 << 16, 1 << 20, 1 << 24])
    world = chaotic_world(slice_bytes, rng)
    plan_faults(world, rng)
    batches = plan_batches(world, slice_bytes, rng)
    world.events.run(until=CHAOS_S + 2)
    world.run(*batches, limit_s=300.0)
    reports = [world.scheduler.report(index) for index in range(len(world.links))]
    assert all(report.in_flight_slices == 0 for report in reports)
    assert sum(report.completed_bytes for report in reports) == sum(b.size for b in batches)


@pytest.mark.parametrize("seed", range(40))
def test_every_byte_lands_once_whatever_the_links_do(seed: int) -> None:
    print(f"replay: pytest '{__file__}' -k 'whatever_the_links_do and [{seed}]'")
    run_case(seed)


@settings(max_examples=25, deadline=None)
@given(st.integers(min_value=1000))
def test_every_byte_lands_once_under_seeds_that_nobody_chose(seed: int) -> None:
    run_case(seed)
