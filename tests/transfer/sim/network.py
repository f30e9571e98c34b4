"""A network in simulated time: links that share their rate, stall, die and come back.

Pure, but for the seeded generator that it is given.
"""

import heapq
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

LINE_RATE = 1.25e9


class Events:
    """What happens when; `run` is the only thing that moves `now`."""

    def __init__(self) -> None:
        self.now = 0.0
        self._order = 0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []

    def at(self, when: float, action: Callable[[], None]) -> None:
        self._order += 1
        heapq.heappush(self._queue, (max(when, self.now), self._order, action))

    def after(self, delay_s: float, action: Callable[[], None]) -> None:
        self.at(self.now + delay_s, action)

    def run(self, *, until: float, unless: Callable[[], bool] = lambda: False) -> None:
        """Carry out what is due up to `until`, or to where `unless` holds."""
        while self._queue and self._queue[0][0] <= until and not unless():
            self.now, _, action = heapq.heappop(self._queue)
            action()
        if not unless():
            self.now = until


@dataclass(eq=False)
class Flow:
    """A slice on its way over one link."""

    left: float
    answered: Callable[[], None]


@dataclass(eq=False)
class Link:
    """`lanes` share the rate evenly; on each lane one flow comes after the other.

    A link whose rate is 0 loses nothing and moves nothing: what TCP sees of a cable that is pulled.
    """

    events: Events
    random: random.Random
    rate: float
    latency_s: float = 100e-6
    jitter_s: float = 0.0
    burst: float = 0.0  # bytes that pass at `LINE_RATE` after a rest, as through a token bucket
    moved: float = 0.0  # bytes, ever
    tokens: float = 0.0
    lanes: dict[int, deque[Flow]] = field(default_factory=dict)
    _since: float = 0.0
    _version: int = 0

    def send(self, lane: int, size: int, answered: Callable[[], None]) -> Flow:
        """Carry `size` bytes; `answered` is called when the sender knows that they have landed."""
        flow = Flow(left=float(size), answered=answered)

        def arrive() -> None:
            self.advance()
            self.lanes.setdefault(lane, deque()).append(flow)
            self._plan()

        self.events.after(self.latency_s / 2, arrive)
        return flow

    def close_lane(self, lane: int) -> None:
        """Move no more byte of what is on this lane."""
        self.advance()
        self.lanes.pop(lane, None)
        self._plan()

    def set_rate(self, rate: float) -> None:
        self.advance()
        self.rate = rate
        self._plan()

    def advance(self) -> None:
        """Move bytes up to now."""
        heads = [lane[0] for lane in self.lanes.values() if lane]
        elapsed, self._since = self.events.now - self._since, self.events.now
        if self.rate == 0:
            return
        fast_s = min(elapsed, self._fast_s()) if heads else 0.0
        moved = fast_s * LINE_RATE + (elapsed - fast_s) * self.rate
        for flow in heads:
            part = min(flow.left, moved / len(heads))
            flow.left -= part
            self.moved += part
        left = self.tokens + elapsed * self.rate - (moved if heads else 0)
        self.tokens = min(max(left, 0.0), self.burst)

    def _fast_s(self) -> float:
        """Return how long it goes on at the line's rate."""
        return self.tokens / (LINE_RATE - self.rate) if self.rate < LINE_RATE else 0.0

    def _plan(self) -> None:
        self._version += 1
        version = self._version
        heads = [lane[0].left for lane in self.lanes.values() if lane]
        if heads and self.rate > 0:
            size, fast_s = min(heads) * len(heads), self._fast_s()
            due_s = min(size / LINE_RATE, fast_s) + max(size - fast_s * LINE_RATE, 0) / self.rate
            self.events.after(due_s, lambda: self._land(version))

    def _land(self, version: int) -> None:
        if version != self._version:
            return
        self.advance()
        for lane in self.lanes.values():
            if lane and lane[0].left < 1e-3:
                delay_s = self.latency_s / 2 + self.jitter_s * self.random.random()
                self.events.after(delay_s, lane.popleft().answered)
        self._plan()
