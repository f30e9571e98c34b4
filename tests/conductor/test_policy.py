"""Decisions that the paper leaves open: absence, avoidance, ties, room."""

import random
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_core.conductor.policy import Ask, Choice, ClusterView, Refuse, choose
from tests.conductor.views import decode, prefill, view

ASK = Ask(prompt_tokens=1000, max_tokens=100)


def ask(**values: Any) -> Ask:
    return Ask(**{"prompt_tokens": 1000, "max_tokens": 100, **values})


@pytest.mark.parametrize(
    ("cluster", "reason"),
    [
        (view(), "no_prefill"),
        (view(prefill("p", capacity_tokens=999)), "too_large"),
        (view(prefill("p"), decode("d", pages=68, free_pages=68)), "too_large"),
        (view(prefill("p"), decode("d", free_pages=68)), "decode_full"),
        (view(prefill("p", queue_s=99.5)), "ttft_slo"),
        (
            ClusterView(
                prefills=(prefill("p"),),
                decodes=(),
                ttft_slo_s=1,
                tbt_slo_s=1,
                balancing_threshold=2,
            ),
            "no_decode",
        ),
    ],
)
def test_a_request_that_cannot_be_served_is_refused_with_the_reason(
    cluster: ClusterView, reason: str
) -> None:
    outcome = choose(cluster, ASK, 0.5)
    assert isinstance(outcome, Refuse)
    assert outcome.reason == reason


def test_what_is_too_large_names_the_numbers() -> None:
    outcome = choose(view(prefill("p"), decode("d", pages=10, free_pages=10)), ASK, 0.0)
    assert isinstance(outcome, Refuse)
    assert "1000 + 100 = 1100" in outcome.message and "160" in outcome.message


@pytest.mark.parametrize("name", ["a", "http://a"])
def test_an_instance_to_avoid_is_taken_only_if_there_is_no_other(name: str) -> None:
    request = ask(avoid=frozenset({name}), local_tokens={"a": 768})
    assert prefill_of(choose(view(prefill("a"), prefill("b")), request, 0.0)) == "b"
    assert prefill_of(choose(view(prefill("a")), request, 0.0)) == "a"


def test_a_retry_is_not_refused_for_an_slo() -> None:
    cluster = view(prefill("p", queue_s=1000.0))
    assert isinstance(choose(cluster, ask(is_admitted=True), 0.0), Choice)


def test_decode_is_chosen_by_room_where_slots_are_free() -> None:
    cluster = view(prefill("p"), decode("full", free_pages=100), decode("empty"))
    outcome = choose(cluster, ASK, 0.0)
    assert isinstance(outcome, Choice)
    assert outcome.decode.instance_id == "empty"


def test_sequences_beyond_the_batch_take_turns() -> None:
    steps = decode("d").steps.observed(4, 0.1)
    cluster = view(prefill("p"), decode("d", running=7, max_batch=4, steps=steps))
    outcome = choose(cluster, ASK, 0.0)
    assert isinstance(outcome, Choice)
    assert outcome.tbt_s == pytest.approx(0.2)


def test_all_miss_one_at_a_time_gives_every_instance_its_share() -> None:
    """Four workers, every request a miss, one in flight: a quarter each, within 5 points."""
    rng = random.Random(1)
    cluster = view(*[prefill(f"p{i}") for i in range(4)])
    chosen = Counter(prefill_of(choose(cluster, ASK, rng.random())) for _ in range(4000))
    assert all(abs(count / 4000 - 0.25) < 0.05 for count in chosen.values()), chosen
    assert len(chosen) == 4


def test_estimates_that_differ_by_noise_still_share() -> None:
    rng = random.Random(2)
    noisy = [prefill(f"p{i}", queue_s=0.01 * i) for i in range(4)]
    chosen = Counter(prefill_of(choose(view(*noisy), ASK, rng.random())) for _ in range(4000))
    assert min(chosen.values()) > 800, chosen


def test_a_hot_prefix_neither_starves_nor_drowns_an_instance() -> None:
    """90 % of requests share a prefix that one instance holds: the work still spreads."""
    rng = random.Random(3)
    queue_s = dict.fromkeys(["p0", "p1", "p2", "p3"], 0.0)
    work_s = dict.fromkeys(queue_s, 0.0)
    for _ in range(2000):
        hot = rng.random() < 0.9
        request = ask(
            prompt_tokens=2000,
            local_tokens={"p0": 1792} if hot else {},
            store_tokens=1792 if hot else 0,
        )
        cluster = view(*[prefill(name, queue_s=queue_s[name]) for name in queue_s])
        outcome = choose(cluster, request, rng.random())
        assert isinstance(outcome, Choice)
        name = outcome.prefill.instance.instance_id
        queue_s[name] += outcome.prefill.work_s
        work_s[name] += outcome.prefill.work_s
        queue_s = {name: max(0.0, seconds - 0.1) for name, seconds in queue_s.items()}
    mean = sum(work_s.values()) / 4
    assert max(work_s.values()) < 1.5 * mean, work_s
    assert min(work_s.values()) > 0.5 * mean, work_s


@given(
    queues=st.lists(st.floats(0, 50), min_size=1, max_size=6),
    local=st.lists(st.integers(0, 3), min_size=6, max_size=6),
    store=st.integers(0, 3),
    unit=st.floats(0, 1, exclude_max=True),
)
def test_the_choice_is_within_a_tie_of_the_best_of_all(
    queues: list[float], local: list[int], store: int, unit: float
) -> None:
    instances = [prefill(f"p{i}", queue_s=queue) for i, queue in enumerate(queues)]
    request = ask(
        local_tokens={f"p{i}": 256 * blocks for i, blocks in enumerate(local)},
        store_tokens=256 * store,
    )
    outcome = choose(view(*instances), request, unit)
    best = min(
        queue + (1000 - 256 * max(blocks, store)) * 1e-3 + 256 * max(0, store - blocks) * 1e-5
        for queue, blocks in zip(queues, local, strict=False)
    )
    assert isinstance(outcome, Choice)
    assert best - 1e-9 <= outcome.prefill.ttft_s <= 1.0501 * best


def prefill_of(outcome: Choice | Refuse) -> str:
    assert isinstance(outcome, Choice), outcome
    return outcome.prefill.instance.instance_id
