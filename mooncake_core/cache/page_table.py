"""Which page of a KV pool is whose. Pure; one caller at a time.

    free ──allocate──► owned ──share──► shared ──reclaim──► free
      ▲                  │ └──quarantine──► quarantined ──readmit──┐
      └──────free────────┘                                         ▼ free

Owned pages belong to one request; shared ones to the prefix cache, which counts their users;
quarantined ones to nobody, because a process that may still write them has not been fenced yet.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Iterable
from enum import IntEnum


class PageState(IntEnum):
    """Whose a page is."""

    FREE = 0
    OWNED = 1
    SHARED = 2
    QUARANTINED = 3


class PageTable:
    """The states of `pages` pages, and the free ones as runs.

    A sequence whose pages are consecutive is read without a copy, so allocation prefers runs.
    """

    def __init__(self, pages: int) -> None:
        assert pages > 0, pages
        self.pages = pages
        self._states = bytearray(pages)
        self._runs = [(0, pages)]
        """Free runs (first page, length): sorted, not empty, not adjacent."""
        self._counts = {state: 0 for state in PageState}
        self._counts[PageState.FREE] = pages

    def count(self, state: PageState) -> int:
        """Return how many pages are in `state`."""
        return self._counts[state]

    def state(self, page: int) -> PageState:
        """Return the state of `page`."""
        return PageState(self._states[page])

    def allocate(self, count: int, *, after: int | None = None) -> list[int] | None:
        """Take `count` free pages, in as few runs as is easy, or none.

        Args:
            count: at least 0.
            after: the page that precedes them in the sequence; the run behind it is tried first.

        Returns:
            The pages, owned now; None when fewer are free.
        """
        if count > self._counts[PageState.FREE]:
            return None
        taken: list[int] = []
        if after is not None:
            self._take_at(after + 1, count, taken)
        while len(taken) < count:
            self._take(self._best_run(count - len(taken)), count - len(taken), taken)
        self._move(taken, PageState.FREE, PageState.OWNED)
        return taken

    def free(self, pages: Iterable[int]) -> None:
        """Give owned pages back."""
        self._release(list(pages), PageState.OWNED)

    def share(self, pages: Iterable[int]) -> None:
        """Hand owned pages to the prefix cache."""
        self._move(list(pages), PageState.OWNED, PageState.SHARED)

    def reclaim(self, pages: Iterable[int]) -> None:
        """Give pages of the prefix cache back."""
        self._release(list(pages), PageState.SHARED)

    def quarantine(self, pages: Iterable[int]) -> None:
        """Set owned pages aside: somebody may still write them."""
        self._move(list(pages), PageState.OWNED, PageState.QUARANTINED)

    def readmit(self, pages: Iterable[int]) -> None:
        """Give quarantined pages back: nobody can write them any more."""
        self._release(list(pages), PageState.QUARANTINED)

    def check(self) -> None:
        """Assert every invariant; linear in the pages."""
        counted = Counter(self._states)
        assert all(counted[state] == self._counts[state] for state in PageState), self._counts
        free = [page for first, length in self._runs for page in range(first, first + length)]
        assert all(self._states[page] == PageState.FREE for page in free), self._runs
        assert len(free) == self._counts[PageState.FREE], self._runs
        ends = [first + length for first, length in self._runs]
        assert all(end < self._runs[i + 1][0] for i, end in enumerate(ends[:-1])), self._runs

    def _best_run(self, count: int) -> int:
        """Return the index of the smallest run that holds `count` pages, else of the longest."""
        fitting = [(length, i) for i, (_, length) in enumerate(self._runs) if length >= count]
        if fitting:
            return min(fitting)[1]
        return max(range(len(self._runs)), key=lambda i: self._runs[i][1])

    def _take_at(self, page: int, count: int, taken: list[int]) -> None:
        index = bisect_left(self._runs, (page,))
        if index < len(self._runs) and self._runs[index][0] == page and count > 0:
            self._take(index, count, taken)

    def _take(self, index: int, count: int, taken: list[int]) -> None:
        first, length = self._runs.pop(index)
        used = min(count, length)
        taken.extend(range(first, first + used))
        if used < length:
            self._runs.insert(index, (first + used, length - used))

    def _release(self, pages: list[int], source: PageState) -> None:
        self._move(pages, source, PageState.FREE)
        for page in pages:
            self._insert_free(page)

    def _insert_free(self, page: int) -> None:
        first, end = page, page + 1
        index = bisect_left(self._runs, (page,))
        if index < len(self._runs) and self._runs[index][0] == end:
            end += self._runs.pop(index)[1]
        if index > 0 and sum(self._runs[index - 1]) == page:
            first = self._runs.pop(index - 1)[0]
        insort(self._runs, (first, end - first))

    def _move(self, pages: list[int], source: PageState, target: PageState) -> None:
        for page in pages:
            assert self._states[page] == source, (page, self.state(page), source, target)
            self._states[page] = target
        self._counts[source] -= len(pages)
        self._counts[target] += len(pages)
