"""What is measured, under which keys."""

from collections import Counter

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_core.config import load_config
from mooncake_core.errors import ConfigError
from mooncake_core.store_bench.options import StoreBenchConfig
from mooncake_core.store_bench.plan import (
    Case,
    Chooser,
    Place,
    filled_by,
    filled_key,
    make_cases,
    pattern_of,
    ring_keys,
)

CASE = Case(operation="put", size_bytes=4096, batch=2, threads=3)


def test_the_lists_make_a_row_of_each_combination_once() -> None:
    config = StoreBenchConfig(op="get,exists,get", size="4KiB, 1 MiB", batch="1,8", threads="2")
    names = [case.name for case in make_cases(config)]
    assert names == [
        *("get 4 KiB x 1 x 2", "exists 4 KiB x 1 x 2", "get 4 KiB x 8 x 2", "exists 4 KiB x 8 x 2"),
        *("get 1 MiB x 1 x 2", "exists 1 MiB x 1 x 2", "get 1 MiB x 8 x 2", "exists 1 MiB x 8 x 2"),
    ]


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"op": "put,take"}, "--op: 'take' is none of put, get, mixed, exists"),
        ({"size": "0"}, "--size: '0' is 0 bytes; 1 B to 1 GiB are possible"),
        ({"batch": "1025"}, "--batch: '1025' is no whole number from 1 to 1024"),
        ({"threads": "4,x"}, "--threads: 'x' is no whole number"),
        ({"keys": 15, "batch": "4", "threads": "2", "clients": 2}, "16 in all"),
    ],
)
def test_what_makes_no_rows_is_told_with_its_flag(flags: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        make_cases(StoreBenchConfig(**flags))


@pytest.mark.parametrize(
    ("flags", "problem"),
    [
        ({"nodes": 2}, "--nodes: only with loopback"),
        ({"capacity": "2 GiB"}, "--capacity: only with loopback"),
        ({"loopback": True, "master": "10.0.0.1:7400"}, "--master: not with loopback"),
        ({"loopback": True, "capacity": "5"}, "--capacity: '5' is 5 bytes"),
        ({"loopback": True, "replicas": 2}, "--replicas: 2 need as many nodes, not 1"),
        ({"skew": 1.2}, "--skew: only with choice zipf"),
        ({"memory": "much"}, "--memory: 'much' is not a size"),
        ({"gets": 1.5}, "--gets: Expected `float` <= 1"),
    ],
)
def test_what_would_be_ignored_is_refused(flags: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        load_config(StoreBenchConfig, None, flags)


@given(st.integers(1, 500), st.integers(1, 7))
def test_clients_together_fill_each_key_once(keys: int, clients: int) -> None:
    config = StoreBenchConfig(keys=keys, clients=clients)
    filled = [index for client in range(clients) for index in filled_by(config, client)]
    assert sorted(filled) == list(range(keys))


def test_no_two_threads_put_the_same_key_and_none_of_the_working_set() -> None:
    config = StoreBenchConfig(keys=40, clients=2)
    rings = [
        key
        for client in range(2)
        for thread in range(CASE.threads)
        for call in ring_keys(config, "p", CASE, Place(client, thread))
        for key in call
    ]
    filled = [filled_key("p", CASE, index) for index in range(config.keys)]
    assert len({*rings, *filled}) == len(rings) + len(filled) == 36 + 40


def test_a_ring_has_whole_calls_only() -> None:
    config = StoreBenchConfig(keys=15)
    assert [len(call) for call in ring_keys(config, "p", CASE, Place(0, 0))] == [2, 2]


@given(st.binary(max_size=40))
def test_the_pattern_follows_from_the_key_and_is_even(key: bytes) -> None:
    assert pattern_of(key) == pattern_of(bytes(key)) and pattern_of(key) % 2 == 0


def test_uniform_choice_reaches_every_key_alike() -> None:
    chooser = Chooser(4, "uniform", 0.99)
    counts = Counter(chooser.choose(draw / 1000) for draw in range(1000))
    assert counts == {0: 250, 1: 250, 2: 250, 3: 250}


def test_zipf_asks_for_a_key_as_often_as_its_rank_says() -> None:
    chooser = Chooser(3, "zipf", 1.0)
    counts = Counter(chooser.choose(draw / 11_000) for draw in range(11_000))
    # Weights 1, 1/2, 1/3: shares 6, 3 and 2 of 11.
    assert [round(counts[index] / 1000) for index in range(3)] == [6, 3, 2]


@given(st.integers(1, 50), st.floats(0, 1, exclude_max=True), st.floats(0.1, 10))
def test_every_draw_means_a_key(count: int, draw: float, skew: float) -> None:
    for choice in ("uniform", "zipf"):
        assert 0 <= Chooser(count, choice, skew).choose(draw) < count


def test_a_config_survives_its_way_to_a_client_process() -> None:
    config = StoreBenchConfig(op="mixed", choice="zipf", skew=1.5)
    encoded = msgspec.json.encode(config)
    assert msgspec.json.decode(encoded, type=StoreBenchConfig) == config
