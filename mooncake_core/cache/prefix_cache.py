"""An instance's own prefix cache: KV blocks that stay in its pages between requests. Pure.

A block is named by all tokens up to its end, so the blocks of a prompt form a chain and a prefix is
its leading run. Blocks in use have users; the others wait in an order in which a block always comes
before its parent, least recently used chains first. Eviction takes from the front, so what is left
of a chain is always a prefix. One caller at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from mooncake_core.cache.page_table import PageState, PageTable
from mooncake_core.messages import KvEvents


@dataclass
class _Block:
    pages: list[int]
    parent: bytes | None
    users: int


class PrefixCache:
    """Blocks by name, over shared pages of `table`."""

    def __init__(self, table: PageTable) -> None:
        self._table = table
        self._blocks: dict[bytes, _Block] = {}
        self._idle: dict[bytes, None] = {}
        """Blocks without users, first to go first; a block before its parent."""
        self._stored: dict[bytes, None] = {}
        self._removed: dict[bytes, None] = {}
        self._seq = 0

    def __len__(self) -> int:
        return len(self._blocks)

    def match(self, names: Sequence[bytes]) -> int:
        """Return how many leading blocks of `names` are here."""
        for count, name in enumerate(names):
            if name not in self._blocks:
                return count
        return len(names)

    def acquire(self, names: Sequence[bytes]) -> list[int]:
        """Keep the chain `names`, all of which are here, until `release`; return its pages."""
        pages: list[int] = []
        for name in names:
            block = self._blocks[name]
            if block.users == 0:
                del self._idle[name]
            block.users += 1
            pages += block.pages
        return pages

    def release(self, names: Sequence[bytes]) -> None:
        """End one use of the chain `names`."""
        for name in reversed(names):
            block = self._blocks[name]
            assert block.users > 0, name.hex()
            block.users -= 1
            if block.users == 0:
                self._idle[name] = None

    def insert(self, name: bytes, parent: bytes | None, pages: Sequence[int]) -> bool:
        """Take over owned pages as the block `name`, in use once.

        Args:
            name: of the block.
            parent: the block before it in the chain, here and in use; None for a first block.
            pages: in token order.

        Returns:
            False when the block is here already; its pages stay the caller's.
        """
        if name in self._blocks:
            return False
        assert parent is None or self._blocks[parent].users > 0, name.hex()
        self._table.share(pages)
        self._blocks[name] = _Block(list(pages), parent, users=1)
        self._note(name, self._stored, self._removed)
        return True

    def make_room(self, pages: int) -> bool:
        """Evict until `pages` are free; False when what is in use leaves fewer."""
        while self._table.count(PageState.FREE) < pages and self._idle:
            self._evict(next(iter(self._idle)))
        return self._table.count(PageState.FREE) >= pages

    def evictable_pages(self) -> int:
        """Return how many pages hold blocks that nobody uses."""
        return sum(len(self._blocks[name].pages) for name in self._idle)

    def take_events(self) -> KvEvents | None:
        """Return what changed since the last call; None when nothing did."""
        if not self._stored and not self._removed:
            return None
        self._seq += 1
        events = KvEvents(seq=self._seq, stored=_hex(self._stored), removed=_hex(self._removed))
        self._stored, self._removed = {}, {}
        return events

    def take_snapshot(self) -> KvEvents:
        """Return all blocks, as events that start a new count at 0."""
        self._seq = 0
        self._stored, self._removed = {}, {}
        return KvEvents(seq=0, stored=_hex(self._blocks))

    def check(self) -> None:
        """Assert every invariant; linear in the blocks."""
        pages = [page for block in self._blocks.values() for page in block.pages]
        assert len(pages) == len(set(pages)) == self._table.count(PageState.SHARED), len(pages)
        assert self._idle.keys() == {n for n, b in self._blocks.items() if b.users == 0}
        order = {name: place for place, name in enumerate(self._idle)}
        for name, block in self._blocks.items():
            if block.parent is None:
                continue
            parent = self._blocks[block.parent]
            assert parent.users >= block.users, name.hex()
            assert parent.users > 0 or order[name] < order[block.parent], name.hex()

    def _evict(self, name: bytes) -> None:
        del self._idle[name]
        self._table.reclaim(self._blocks.pop(name).pages)
        self._note(name, self._removed, self._stored)

    def _note(self, name: bytes, into: dict[bytes, None], opposite: dict[bytes, None]) -> None:
        """Record a change, unless it undoes one that nobody was told of."""
        if name in opposite:
            del opposite[name]
        else:
            into[name] = None


def _hex(names: dict[bytes, None] | dict[bytes, _Block]) -> list[str]:
    return [name.hex() for name in names]
