"""What a sweep consists of."""

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mooncake_core.errors import ConfigError
from mooncake_core.te_bench.options import BenchConfig
from mooncake_core.te_bench.plan import Case, Layout, make_cases, make_layout, memory_needed


def case(**changes: Any) -> Case:
    whole: dict[str, Any] = {
        **{"transport": "tcp", "direction": "read", "block_bytes": 4096, "batch": 4, "threads": 2},
        **changes,
    }
    return Case(**whole)


def test_lists_make_every_combination_once() -> None:
    config = BenchConfig(
        block="4KiB, 1 MiB,4096", batch="1,16", threads="2", direction="read,both", transport="tcp"
    )
    cases = make_cases(config)
    assert len(cases) == len(set(cases)) == 2 * 2 * 1 * 2
    assert {each.block_bytes for each in cases} == {4096, 1 << 20}


@pytest.mark.parametrize(
    ("key", "text", "problem"),
    [
        ("block", "4KiB,4 KB5", "is not a size"),
        ("block", "0", "1 B to 1 GiB"),
        ("block", "", "is not a size"),
        ("batch", "1,0", "no whole number from 1 to 4096"),
        ("threads", "1.5", "no whole number"),
        ("threads", "65", "no whole number from 1 to 64"),
        ("batch", "4097", "no whole number from 1 to 4096"),
        ("direction", "reed", "is none of read, write, both"),
        ("transport", "rdma", "is none of shm, tcp, auto"),
    ],
)
def test_a_bad_entry_is_told_with_its_flag(key: str, text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=f"--{key}: .*{problem}"):
        make_cases(BenchConfig(**{key: text}))


@given(block=st.integers(1, 5000), batch=st.integers(1, 40), slots=st.integers(1, 40))
def test_the_pieces_of_a_region_cover_it_without_overlap(
    block: int, batch: int, slots: int
) -> None:
    layout = Layout(block_bytes=block, batch=batch, slots=slots)
    assert sorted(layout.places()) == list(range(0, layout.size_bytes, block))


@given(batch=st.integers(1, 64), slots=st.integers(1, 64))
def test_pieces_that_follow_each_other_here_do_not_at_the_target(batch: int, slots: int) -> None:
    layout = Layout(block_bytes=8, batch=batch, slots=slots)
    places = layout.places()
    if layout.blocks > 4:
        assert all(later - earlier != 8 for earlier, later in itertools.pairwise(places))


def test_regions_share_the_memory_and_hold_at_least_a_batch() -> None:
    assert make_layout(case(), 1 << 20).slots == (1 << 20) // 2 // (4 * 4096)
    assert make_layout(case(direction="both"), 1 << 20).slots == (1 << 20) // 4 // (4 * 4096)
    assert make_layout(case(block_bytes=1 << 26), 1 << 20).slots == 1


def test_the_largest_row_says_how_much_memory_is_needed() -> None:
    cases = [case(), case(block_bytes=1 << 20, batch=16)]
    assert memory_needed(cases, 1 << 20) == 2 * 16 << 20
