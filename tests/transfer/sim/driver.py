"""Batches that are carried over simulated links as the native PathScheduler decides."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

from mooncake_core.native import _native
from tests.transfer.sim.network import Events, Link

ALL = (1 << 64) - 1
PROBE_TIMEOUT_S = 1.0


def bits(mask: int) -> Iterator[int]:
    return (i for i in range(mask.bit_length()) if mask >> i & 1)


@dataclass(eq=False)
class Sent:
    slice: _native.PathSlice
    start: int
    size: int
    is_lost: bool = False


class World:
    """One peer: its links, its scheduler, and the batches to it."""

    def __init__(
        self, rates: list[float], *, seed: int = 0, latency_s: float = 100e-6, **options: float
    ) -> None:
        self.random = random.Random(seed)
        self.events = Events()
        self.scheduler = _native.PathScheduler(**options)  # type: ignore[arg-type]
        self.links = [Link(self.events, self.random, rate, latency_s) for rate in rates]
        for index in range(len(rates)):
            assert self.scheduler.add_path() == index
        self.lanes = 0
        self.used_s = [0.0] * len(rates)  # when an answer last came

    @property
    def now(self) -> float:
        return self.events.now

    def submit(self, size: int, *, is_background: bool = False, near: int = ALL) -> "Batch":
        return Batch(self, size, is_background=is_background, near=near)

    def run(self, *batches: "Batch", limit_s: float = 600.0) -> float:
        """Go on until the batches have ended; return the seconds that this took."""
        start = self.now
        self.events.run(
            until=start + limit_s, unless=lambda: all(b.end_s is not None for b in batches)
        )
        assert all(b.end_s is not None for b in batches), f"not done after {limit_s} s"
        return self.now - start

    def cut(self, index: int, *, is_reset: bool = False) -> None:
        """Let the link move nothing from now; with `is_reset` connections die of it at once."""
        self.links[index].set_rate(0)
        if is_reset:
            self.scheduler.failed(index, self.now)

    def probe(self, index: int) -> None:
        link = self.links[index]
        is_good = link.rate > 0
        delay_s = 2 * link.latency_s if is_good else PROBE_TIMEOUT_S
        self.events.after(delay_s, lambda: self.scheduler.probed(index, is_good, self.now))


@dataclass(eq=False)
class Batch:
    """The driver of one batch: the loop that scheduler.h draws.

    With `sees_progress` false only whole answers are seen, as of a writer that asks its kernel
    nothing.
    """

    world: World
    size: int
    is_background: bool = False
    near: int = ALL
    sees_progress: bool = True
    end_s: float | None = None
    landed: list[tuple[int, int]] = field(default_factory=list)
    bytes_of: dict[int, int] = field(default_factory=dict)  # path -> bytes landed
    longest_wait_s: float = 0.0  # between two answers

    def __post_init__(self) -> None:
        self.start_s = self.answer_s = self.world.now
        self.index = self.world.scheduler.begin(is_background=self.is_background, now=self.start_s)
        self.left = [(0, self.size)]  # intervals in no slice
        self.sent: dict[Sent, None] = {}  # in order
        self.lanes: dict[int, int] = {}  # path -> lane
        self.moved: dict[int, float] = {}
        self.version = 0
        self.wake()

    @property
    def took_s(self) -> float:
        assert self.end_s is not None
        return self.end_s - self.start_s

    def wake(self) -> None:
        """Go round the loop once."""
        if self.end_s is not None:
            return
        scheduler, now = self.world.scheduler, self.world.now
        self._see_progress()
        scheduler.stalled(now)
        for path in bits(scheduler.to_probe(now)):
            self.world.probe(path)
        self._move()
        self._fill()
        scheduler.check()
        self._end() if not self.left and not self.sent else self._sleep()

    def _see_progress(self) -> None:
        for path in self.lanes if self.sees_progress else ():
            link = self.world.links[path]
            link.advance()
            if link.moved > self.moved.get(path, -1):
                self.world.scheduler.progress(path, self.world.now)
            self.moved[path] = link.moved

    def _move(self) -> None:
        """Take slices back from quarantined paths, once their lane is closed at the receiver."""
        for sent in [s for s in self.sent if self.world.scheduler.must_move(s.slice)]:
            if sent.is_lost:
                continue
            sent.is_lost = True
            path = sent.slice.path
            if (lane := self.lanes.pop(path, None)) is not None:
                self.world.links[path].close_lane(lane)
            self.world.events.after(1e-3, lambda sent=sent: self._give_back(sent))

    def _give_back(self, sent: Sent) -> None:
        del self.sent[sent]
        self.world.scheduler.returned(sent.slice)
        self.left.append((sent.start, sent.size))
        self.wake()

    def _fill(self) -> None:
        scheduler, now = self.world.scheduler, self.world.now
        while self.left:
            total = sum(size for _, size in self.left)
            choice = scheduler.pick(self.index, total, near=self.near, now=now)
            if choice is None:
                return
            path, most = choice
            assert 0 < most <= total
            start, size = self.left.pop()
            if size > most:
                self.left.append((start + most, size - most))
                size = most
            self._send(path, start, size)

    def _send(self, path: int, start: int, size: int) -> None:
        if path not in self.lanes:
            self.world.lanes += 1
            self.lanes[path] = self.world.lanes
        sent = Sent(self.world.scheduler.start(self.index, path, size, self.world.now), start, size)
        self.sent[sent] = None
        self.world.links[path].send(self.lanes[path], size, lambda: self._answered(sent))

    def _answered(self, sent: Sent) -> None:
        if sent.is_lost:
            return
        now, path = self.world.now, sent.slice.path
        del self.sent[sent]
        self.world.scheduler.completed(sent.slice, now)
        self.world.used_s[path] = now
        self.landed.append((sent.start, sent.size))
        self.bytes_of[path] = self.bytes_of.get(path, 0) + sent.size
        self.longest_wait_s = max(self.longest_wait_s, now - self.answer_s)
        self.answer_s = now
        self.wake()

    def _sleep(self) -> None:
        self.version += 1
        version = self.version
        due = self.world.scheduler.next_event_s(self.index, self.world.now)
        if due < float("inf"):
            self.world.events.at(due, lambda: self.wake() if version == self.version else None)

    def _end(self) -> None:
        self.world.scheduler.end(self.index)
        self.end_s = self.world.now
        at = 0
        for start, size in sorted(self.landed):  # every byte once
            assert start == at
            at += size
        assert at == self.size
