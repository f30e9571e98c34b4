"""The prefix cache keeps chains whole, never evicts what is in use, and says what changed."""

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from mooncake_core.cache.page_table import PageState, PageTable
from mooncake_core.cache.prefix_cache import PrefixCache

BLOCK_PAGES = 2
PAGES = 24
PROMPTS = st.text("ab", min_size=1, max_size=6)


def chain(prompt: str) -> list[bytes]:
    """Name every prefix of `prompt` by itself."""
    return [prompt[: end + 1].encode() for end in range(len(prompt))]


class CacheOfPrompts(RuleBasedStateMachine):
    """Requests that come and go, and an index fed by the events as a conductor's is."""

    def __init__(self) -> None:
        super().__init__()
        self.table = PageTable(PAGES)
        self.cache = PrefixCache(self.table)
        self.running: list[list[bytes]] = []
        self.content: dict[bytes, list[int]] = {}
        self.index: set[str] = set()
        self.seq = 0

    @rule(prompt=PROMPTS)
    def start(self, prompt: str) -> None:
        names = chain(prompt)
        held = self.cache.match(names)
        assert not any(name in self.content for name in names[held : held + 1])
        pages = self.cache.acquire(names[:held])
        assert pages == [page for name in names[:held] for page in self.content[name]]
        missing = (len(names) - held) * BLOCK_PAGES
        used = {name for names in self.running for name in names} | set(names[:held])
        room = PAGES - BLOCK_PAGES * len(used)
        assert self.cache.make_room(missing) == (missing <= room)
        self.forget_evicted()
        if missing > room:
            self.cache.release(names[:held])
            return
        self.compute(names, held)

    def compute(self, names: list[bytes], held: int) -> None:
        for index in range(held, len(names)):
            pages = self.table.allocate(BLOCK_PAGES)
            assert pages is not None
            parent = names[index - 1] if index else None
            assert self.cache.insert(names[index], parent, pages)
            self.content[names[index]] = pages
        self.running.append(names)

    def forget_evicted(self) -> None:
        for name in list(self.content):
            if self.cache.match([name]) == 0:
                del self.content[name]

    @rule(data=st.data())
    def finish(self, data: st.DataObject) -> None:
        if self.running:
            place = data.draw(st.integers(0, len(self.running) - 1))
            self.cache.release(self.running.pop(place))

    @rule()
    def report(self) -> None:
        events = self.cache.take_events()
        if events is None:
            return
        assert events.seq == self.seq + 1
        self.seq = events.seq
        assert not self.index & set(events.stored)
        assert set(events.removed) <= self.index
        self.index = (self.index | set(events.stored)) - set(events.removed)
        assert self.index == {name.hex() for name in self.content}

    @rule()
    def register_again(self) -> None:
        snapshot = self.cache.take_snapshot()
        assert snapshot.seq == 0 and not snapshot.removed
        self.seq, self.index = 0, set(snapshot.stored)
        assert self.index == {name.hex() for name in self.content}

    @invariant()
    def all_is_accounted_for(self) -> None:
        self.cache.check()
        self.table.check()
        assert self.table.count(PageState.OWNED) == 0
        assert len(self.cache) == len(self.content)
        for name in self.content:
            assert len(name) == 1 or name[:-1] in self.content, "a chain lost its middle"


TestCacheOfPrompts = CacheOfPrompts.TestCase
TestCacheOfPrompts.settings = settings(max_examples=40, stateful_step_count=30, deadline=None)


def filled(prompts: list[str]) -> tuple[PageTable, PrefixCache]:
    table = PageTable(PAGES)
    cache = PrefixCache(table)
    for prompt in prompts:
        names = chain(prompt)
        held = cache.match(names)
        cache.acquire(names[:held])
        for index in range(held, len(names)):
            pages = table.allocate(BLOCK_PAGES)
            assert pages is not None
            cache.insert(names[index], names[index - 1] if index else None, pages)
        cache.release(names)
    return table, cache


def test_the_least_recently_used_chain_goes_first_from_its_tail() -> None:
    table, cache = filled(["aaa", "bbb"])
    cache.acquire(chain("aaa"))
    cache.release(chain("aaa"))
    cache.make_room(table.count(PageState.FREE) + 2 * BLOCK_PAGES)
    assert cache.match(chain("aaa")) == 3
    assert cache.match(chain("bbb")) == 1


def test_a_block_that_is_here_already_leaves_the_pages_to_the_caller() -> None:
    table, cache = filled(["a"])
    pages = table.allocate(BLOCK_PAGES)
    assert pages is not None
    assert not cache.insert(b"a", None, pages)
    assert table.count(PageState.OWNED) == BLOCK_PAGES


def test_evictable_pages_are_those_without_users() -> None:
    _, cache = filled(["aaa", "bb"])
    cache.acquire(chain("aa"))
    assert cache.evictable_pages() == 3 * BLOCK_PAGES


def test_a_block_that_came_and_went_unreported_is_no_event() -> None:
    table, cache = filled(["a"])
    cache.make_room(PAGES)
    assert table.count(PageState.FREE) == PAGES
    assert cache.take_events() is None
