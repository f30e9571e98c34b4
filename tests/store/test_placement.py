"""What each placement strategy promises; two copies never share a domain."""

from __future__ import annotations

from collections import Counter

import pytest

from mooncake_core.native import _native

KIB = 1 << 10
STRATEGIES = ["free-ratio-first", "random", "round-robin", "local-first"]


def make(strategy, seed=7):
    return _native.Placement.make(strategy, seed=seed)


def node(name, *, domain=0, host=0, capacity=100 * KIB, free=None, evictable=0, **state):
    return _native.NodeView.make(
        name,
        domain=domain,
        host=host,
        capacity_bytes=capacity,
        free_bytes=capacity if free is None else free,
        evictable_bytes=evictable,
        **state,
    )


def nodes(count, **options):
    return [node(f"n{at}", domain=at, host=at, **options) for at in range(count)]


def test_an_unknown_strategy_is_refused_with_the_known_ones():
    with pytest.raises(_native.Error, match="'best' is not known; there are: free-ratio-first"):
        make("best")
    assert _native.Placement.strategies() == STRATEGIES


def test_free_ratio_first_fills_nodes_in_proportion_to_their_size():
    placement, capacities, used = make("free-ratio-first"), [100, 200, 400], [0, 0, 0]
    for _ in range(350):
        views = [
            node(f"n{at}", domain=at, capacity=size, free=size - used[at])
            for at, size in enumerate(capacities)
        ]
        [slot] = placement.place(views, bytes=1)
        used[slot] += 1
    assert used == [50, 100, 200]


def test_random_is_even_and_the_same_for_a_seed():
    views = nodes(4)
    first = [make("random", seed=3).place(views, bytes=1, copies=2) for _ in range(1)]
    assert first == [make("random", seed=3).place(views, bytes=1, copies=2)]
    placement = make("random")
    counts = Counter(placement.place(views, bytes=1)[0] for _ in range(4000))
    # A count's standard deviation is 27.
    assert all(abs(counts[slot] - 1000) < 150 for slot in range(4))


def test_round_robin_takes_turns_exactly():
    placement, views = make("round-robin"), nodes(3)
    assert [placement.place(views, bytes=1)[0] for _ in range(7)] == [0, 1, 2, 0, 1, 2, 0]
    assert placement.place(views, bytes=1, copies=2) == [1, 2]
    assert placement.place(views, bytes=1, copies=2) == [0, 1]


def test_round_robin_passes_over_nodes_that_take_nothing():
    placement = make("round-robin")
    views = [*nodes(2), node("draining", domain=5, is_open=False), node("last", domain=6)]
    assert [placement.place(views, bytes=1)[0] for _ in range(6)] == [0, 1, 3, 0, 1, 3]


def test_local_first_prefers_the_writers_host_and_then_free_space():
    placement = make("local-first")
    views = [
        node("far-full", domain=0, host=1, free=10 * KIB),
        node("near-full", domain=1, host=2, free=5 * KIB),
        node("far-empty", domain=2, host=3),
        node("near-fuller", domain=3, host=2, free=4 * KIB),
    ]
    assert placement.place(views, bytes=1, copies=4, host=2) == [1, 3, 2, 0]
    assert placement.place(views, bytes=1, copies=4) == [2, 0, 1, 3]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_preferred_nodes_come_first_in_their_order(strategy):
    placement = make(strategy)
    placed = placement.place(nodes(4), bytes=1, copies=3, preferred=["n2", "gone", "n1"])
    assert placed[:2] == [2, 1]
    assert len(placed) == 3


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_two_copies_never_share_a_domain(strategy):
    placement = make(strategy)
    views = [node(f"n{at}", domain=at % 2) for at in range(6)]
    for _ in range(50):
        placed = placement.place(views, bytes=1, copies=3)
        assert sorted(slot % 2 for slot in placed) == [0, 1], "one copy a domain, as many as can be"
    assert _native.Placement.count_domains(views) == 2


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nodes_that_are_closed_or_too_full_get_nothing(strategy):
    placement = make(strategy)
    views = [
        node("draining", domain=0, is_open=False),
        node("full", domain=1, free=1, evictable=2),
        node("evictable", domain=2, free=1, evictable=8),
    ]
    assert placement.place(views, bytes=9, copies=3) == [2]
    assert placement.place(views, bytes=10, copies=3) == []
    assert _native.Placement.count_domains(views) == 2


def test_no_nodes_at_all_give_no_place():
    for strategy in STRATEGIES:
        assert make(strategy).place([], bytes=1) == []


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_node_that_is_doubted_is_taken_last_even_if_it_is_preferred(strategy):
    views = [node("doubted", domain=0, is_doubted=True), *nodes(3)[1:]]
    for _ in range(20):
        slots = make(strategy).place(views, bytes=1, copies=3, preferred=["doubted", "n2"])
        assert slots == [2, 1, 0]
