"""The page table against a dumb twin, and what allocation prefers."""

import hypothesis.strategies as st
import pytest
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mooncake_core.cache.page_table import PageState, PageTable

PAGES = 40
MOVES = {
    "free": (PageState.OWNED, PageState.FREE),
    "share": (PageState.OWNED, PageState.SHARED),
    "reclaim": (PageState.SHARED, PageState.FREE),
    "quarantine": (PageState.OWNED, PageState.QUARANTINED),
    "readmit": (PageState.QUARANTINED, PageState.FREE),
}


class TwinTables(RuleBasedStateMachine):
    """A page table, and a list of states."""

    def __init__(self) -> None:
        super().__init__()
        self.table = PageTable(PAGES)
        self.states = [PageState.FREE] * PAGES

    @rule(count=st.integers(0, PAGES), after=st.none() | st.integers(0, PAGES))
    def allocate(self, count: int, after: int | None) -> None:
        taken = self.table.allocate(count, after=after)
        if count > self.states.count(PageState.FREE):
            assert taken is None
            return
        assert taken is not None and len(taken) == len(set(taken)) == count
        for page in taken:
            assert self.states[page] is PageState.FREE
            self.states[page] = PageState.OWNED

    @rule(name=st.sampled_from(sorted(MOVES)), chosen=st.sets(st.integers(0, PAGES - 1)))
    def move(self, name: str, chosen: set[int]) -> None:
        source, target = MOVES[name]
        pages = [page for page in chosen if self.states[page] is source]
        getattr(self.table, name)(pages)
        for page in pages:
            self.states[page] = target

    @invariant()
    def tables_agree(self) -> None:
        self.table.check()
        assert [self.table.state(page) for page in range(PAGES)] == self.states
        for state in PageState:
            assert self.table.count(state) == self.states.count(state)


TestTwinTables = TwinTables.TestCase
TestTwinTables.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def test_allocation_takes_the_smallest_run_that_fits() -> None:
    table = PageTable(20)
    pages = table.allocate(20)
    assert pages is not None
    table.free([*range(2, 10), *range(12, 16)])
    assert table.allocate(3) == [12, 13, 14]
    assert table.allocate(8) == list(range(2, 10))


def test_allocation_goes_on_behind_the_page_before() -> None:
    table = PageTable(20)
    first = table.allocate(4)
    assert first == [0, 1, 2, 3]
    table.allocate(2)
    table.free([2, 3])
    assert table.allocate(3, after=5) == [6, 7, 8]


def test_allocation_joins_runs_when_none_is_long_enough() -> None:
    table = PageTable(10)
    table.allocate(10)
    table.free([0, 1, 4, 5, 6, 9])
    assert table.allocate(5) == [4, 5, 6, 0, 1]


def test_a_page_is_not_freed_twice() -> None:
    table = PageTable(4)
    table.allocate(2)
    table.free([0])
    with pytest.raises(AssertionError):
        table.free([0])
