"""The figures that spraying has to reach, on links of 500 Mb/s unless a test says otherwise."""

import pytest

from tests.transfer.sim.driver import Batch, World

LINK = 62.5e6
MIB = 1 << 20


def efficiency(world: World, size: int, *, times: int = 4) -> float:
    """Return the share of the links' sum that the last of some batches reached."""
    for _ in range(times):
        batch = world.submit(size)
        world.run(batch)
    return size / sum(link.rate for link in world.links) / batch.took_s


def repeat(world: World, size: int, *, until: float) -> list[Batch]:
    """Run batches one after the other."""
    batches = []
    while world.now < until:
        batches.append(world.submit(size))
        world.run(batches[-1])
    return batches


@pytest.mark.parametrize("count", [1, 2, 4, 8])
def test_equal_links_carry_their_sum(count: int) -> None:
    assert efficiency(World([LINK] * count), 256 * MIB, times=1) >= 0.99


@pytest.mark.parametrize("size", [1, 2, 4, 8, 16, 64])
def test_even_small_batches_end_on_all_links_at_once(size: int) -> None:
    assert efficiency(World([LINK] * 4), size * MIB) >= 0.95


@pytest.mark.parametrize("rate", [LINK / 10, LINK / 1000])
@pytest.mark.parametrize("size", [4, 64, 256])
def test_a_slow_link_gets_its_share_and_no_more(rate: float, size: int) -> None:
    assert efficiency(World([LINK] * 3 + [rate]), size * MIB) >= 0.95


@pytest.mark.parametrize("last", [LINK, LINK / 10])
@pytest.mark.parametrize("burst", [64_000, 256_000])
def test_a_burst_after_a_rest_does_not_make_a_link_look_fast(last: float, burst: float) -> None:
    world = World([LINK] * 3 + [last])
    for link in world.links:
        link.burst = link.tokens = burst
    for size in [64 * MIB, *([65_536] * 20), 64 * MIB]:
        batch = world.submit(size)
        world.run(batch)
        world.events.run(until=world.now + 0.1)
    assert batch.took_s <= 64 * MIB / (3 * LINK + last) * 1.05


def test_a_fast_link_is_not_throttled() -> None:
    assert efficiency(World([5e9], latency_s=50e-6), 256 * MIB) >= 0.99
    assert efficiency(World([5e9] * 4, latency_s=50e-6), 256 * MIB) >= 0.95


@pytest.mark.parametrize("count", [1, 4])
def test_a_long_way_is_filled_too(count: int) -> None:
    world = World([LINK] * count, latency_s=0.05)
    size = 256 * MIB
    world.run(world.submit(size))
    batch = world.submit(size)
    world.run(batch)
    assert batch.took_s <= (size / LINK / count + 0.05) * 1.05


def test_answers_that_come_late_by_chance_cost_little() -> None:
    world = World([LINK] * 3 + [LINK / 10])
    for link in world.links:
        link.jitter_s = 0.005
    assert efficiency(world, 256 * MIB) >= 0.98


@pytest.mark.parametrize("sees_progress", [True, False])
def test_a_link_that_slows_down_and_recovers_is_followed_at_once(sees_progress: bool) -> None:
    world = World([LINK] * 4)
    batch = world.submit(1_000_000_000)
    batch.sees_progress = sees_progress
    rate = {}

    def note(name: str) -> None:
        rate[name] = world.scheduler.report(1).rate_bytes_per_s

    world.events.at(1.0, lambda: world.links[1].set_rate(LINK / 10))
    world.events.at(1.2, lambda: note("slow"))
    world.events.at(2.0, lambda: world.links[1].set_rate(LINK))
    world.events.at(2.1, lambda: note("fast"))
    world.run(batch)
    assert rate["slow"] <= LINK / 5
    assert rate["fast"] >= LINK * 0.9
    assert batch.took_s <= (1e9 + 0.9 * LINK) / (4 * LINK) * 1.02


@pytest.mark.parametrize("is_reset", [False, True])
def test_a_big_batch_outlives_a_cut_and_uses_the_link_again(is_reset: bool) -> None:
    world = World([LINK] * 4)
    batch = world.submit(2_000_000_000)
    world.events.at(1.0, lambda: world.cut(1, is_reset=is_reset))
    world.events.at(3.2, lambda: world.links[1].set_rate(LINK))
    world.events.run(until=3.3)
    assert world.used_s[1] <= 1.01
    world.events.run(until=5.2)
    assert world.used_s[1] > 3.2
    world.run(batch)
    assert batch.longest_wait_s < 0.1  # the other links never rest
    assert world.scheduler.report(1).quarantines == 1
    without_link_s = 2.2 + 2.0  # until it is used again, at worst
    assert batch.took_s <= (2e9 + without_link_s * LINK) / (4 * LINK) * 1.02


@pytest.mark.parametrize("back_s", [2.0, 7.3])
def test_small_batches_wait_less_than_a_second_for_a_cut_link(back_s: float) -> None:
    world = World([LINK] * 4)
    world.events.at(1.0, lambda: world.cut(1))
    world.events.at(back_s, lambda: world.links[1].set_rate(LINK))
    batches = repeat(world, 4 * MIB, until=back_s + 5)
    assert max(batch.took_s for batch in batches) < 0.5
    assert world.used_s[1] > back_s


def test_small_batches_find_out_that_a_slow_link_became_fast() -> None:
    world = World([LINK] * 3 + [LINK / 100])
    repeat(world, MIB, until=1.0)
    world.links[3].set_rate(LINK)
    assert MIB not in repeat(world, MIB, until=6.0)[-1].bytes_of
    assert efficiency(world, MIB) >= 0.95


def test_when_all_links_are_cut_the_batch_waits_and_goes_on() -> None:
    world = World([LINK] * 2)
    batch = world.submit(125_000_000)
    for index in range(2):
        world.events.at(0.5, lambda index=index: world.cut(index))
        world.events.at(2.5, lambda index=index: world.links[index].set_rate(LINK))
    world.run(batch)
    assert batch.took_s <= 3.05
    assert all(world.scheduler.report(index).quarantines == 0 for index in range(2))


def test_a_lone_link_that_was_reset_is_tried_again_at_once() -> None:
    world = World([LINK])
    batch = world.submit(62_500_000)

    def reset() -> None:
        world.scheduler.failed(0, world.now)

    world.events.at(0.5, reset)
    world.run(batch)
    assert batch.took_s <= 1.1


def test_a_lone_link_is_never_given_up_for_a_stall() -> None:
    world = World([LINK])
    batch = world.submit(62_500_000)
    world.events.at(0.5, lambda: world.cut(0))
    world.events.at(5.5, lambda: world.links[0].set_rate(LINK))
    world.run(batch)
    assert 5.9 <= batch.took_s <= 6.1
    assert world.scheduler.report(0).quarantines == 0


def test_a_link_that_flaps_is_tried_less_and_less() -> None:
    world = World([LINK] * 2)
    batch = world.submit(5_000_000_000)
    link = world.links[1]

    def flap() -> None:  # connections succeed, then nothing moves
        link.set_rate(1.0)

    world.events.at(1.0, flap)
    world.events.run(until=31.0)
    assert 10 <= world.scheduler.report(1).quarantines <= 15
    world.run(batch)
    assert batch.longest_wait_s < 0.1


def test_a_foreground_batch_hardly_waits_for_background_ones() -> None:
    alone = World([LINK] * 4)
    for _ in range(3):
        batch = alone.submit(MIB)
        alone.run(batch)
    world = World([LINK] * 4)
    background = world.submit(1_000_000_000, is_background=True)
    took = []
    for at in range(20):
        world.events.run(until=0.5 + 0.05 * at)
        foreground = world.submit(MIB)
        world.run(foreground)
        took.append(foreground.took_s)
    assert max(took) <= 4 * batch.took_s
    world.run(background)  # and nothing is lost by it
    assert background.took_s <= (1e9 + 20 * MIB) / (4 * LINK) * 1.02


def test_a_background_batch_gets_little_but_never_starves() -> None:
    world = World([LINK] * 4)
    background = world.submit(64_000_000, is_background=True)
    world.events.run(until=0.05)
    foreground = world.submit(2_000_000_000)
    world.run(foreground)
    assert foreground.took_s <= 2e9 / (4 * LINK) * 1.05
    assert background.longest_wait_s <= 0.3


def test_batches_of_one_priority_share() -> None:
    world = World([LINK] * 4)
    batches = [world.submit(100_000_000) for _ in range(4)]
    world.run(*batches)
    assert max(b.took_s for b in batches) <= 4e8 / (4 * LINK) * 1.02
    assert all(b.longest_wait_s < 0.15 for b in batches)


def test_near_links_are_preferred_and_far_ones_help_when_they_are_full() -> None:
    world = World([LINK] * 4)
    near = 0b0011
    for _ in range(2):
        small = world.submit(MIB // 4, near=near)
        world.run(small)
    assert set(small.bytes_of) == {0, 1}
    big = world.submit(256 * MIB, near=near)
    world.run(big)
    assert big.took_s <= 256 * MIB / (4 * LINK) * 1.05
    assert big.bytes_of[0] + big.bytes_of[1] >= big.bytes_of[2] + big.bytes_of[3]


def test_far_links_carry_all_when_the_near_ones_are_gone() -> None:
    world = World([LINK] * 4)
    for index in range(2):
        world.cut(index, is_reset=True)
    batch = world.submit(64 * MIB, near=0b0011)
    world.run(batch)
    assert set(batch.bytes_of) == {2, 3}
    assert batch.took_s <= 64 * MIB / (2 * LINK) * 1.05


@pytest.mark.parametrize("slice_bytes", [1, 4096, 65_536, 1 << 30])
def test_any_slice_size_works(slice_bytes: int) -> None:
    world = World([LINK, LINK / 2], slice_bytes=slice_bytes)
    batch = world.submit(min(500 * slice_bytes, 16 * MIB))
    world.run(batch)
    assert max(size for _, size in batch.landed) <= slice_bytes


def test_a_batch_gets_only_paths_that_it_can_send_on_or_waits_for_better_ones() -> None:
    world = World([LINK] * 3 + [LINK / 100])
    world.run(world.submit(64 * MIB))
    index = world.scheduler.begin(is_background=False, now=world.now)

    def pick(left: int, is_open: int) -> int | None:
        choice = world.scheduler.pick(index, left, open=is_open, now=world.now)
        return None if choice is None else choice[0]

    assert pick(MIB, 0b0100) == 2
    assert pick(MIB, 0b1000) == 3  # nothing is in flight yet
    assert pick(MIB, 0) is None
    sent = world.scheduler.start(index, 2, MIB, world.now)
    assert pick(MIB, 0b1000) is None
    assert pick(1 << 30, 0b1000) == 3
    world.scheduler.completed(sent, world.now + 0.017)
    world.scheduler.end(index)
