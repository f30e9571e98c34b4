"""Runs of tokens over two page lists cover each token once, and no run could be longer."""

from itertools import pairwise

import hypothesis.strategies as st
from hypothesis import given

from mooncake_core.cache.spans import paired_runs

PAGE_TOKENS = 4


@st.composite
def sequences(draw: st.DrawFn) -> tuple[list[int], list[int], int, int]:
    source = draw(st.permutations(range(8)))
    target = draw(st.permutations(range(8)))
    begin = draw(st.integers(0, 32))
    return source, target, begin, draw(st.integers(begin, 32))


def slot(pages: list[int], token: int) -> int:
    return pages[token // PAGE_TOKENS] * PAGE_TOKENS + token % PAGE_TOKENS


@given(sequences())
def test_runs_are_the_tokens_in_order(case: tuple[list[int], list[int], int, int]) -> None:
    source, target, begin, end = case
    runs = list(paired_runs(source, target, PAGE_TOKENS, begin, end))
    covered = [(left + i, right + i) for left, right, count in runs for i in range(count)]
    assert covered == [(slot(source, t), slot(target, t)) for t in range(begin, end)]


@given(sequences())
def test_no_two_runs_could_be_one(case: tuple[list[int], list[int], int, int]) -> None:
    source, target, begin, end = case
    runs = list(paired_runs(source, target, PAGE_TOKENS, begin, end))
    for (left, right, count), following in pairwise(runs):
        assert (left + count, right + count) != following[:2]


def test_consecutive_pages_are_one_run() -> None:
    assert list(paired_runs([3, 4, 5], [7, 8, 9], PAGE_TOKENS, 2, 11)) == [(14, 30, 9)]
