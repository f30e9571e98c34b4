"""What one thread does: the same kind of call over and over, each timed, the rest untimed."""

from __future__ import annotations

import itertools
import random
import threading
import time
from collections.abc import Sequence
from typing import Protocol

from mooncake_core.errors import MooncakeError
from mooncake_core.store import StoreClient
from mooncake_core.store_bench.client import Access, Arena, PlainBytes, Slot, Value, ZeroCopy
from mooncake_core.store_bench.options import StoreBenchConfig
from mooncake_core.store_bench.plan import Case, Chooser, Place, filled_key, ring_keys
from mooncake_core.store_bench.tally import Tally
from mooncake_core.store_bench.values import fill, find_wrong, wipe
from mooncake_core.transfer import TransferEngine

PREPARED_CALLS = 4096
"""The keys of so many calls are chosen beforehand, and then chosen again in the same order."""
_FAULTS = (MooncakeError, ValueError)
_clock = time.perf_counter


class Bound:
    """What the loads of a client have in common.

    Args:
        engine: that memory is registered with.
        client: that is called.
        config: of the benchmark.
        prefix: of all keys.
        stop: once it is set, nobody waits for what the loads find.
    """

    def __init__(
        self,
        engine: TransferEngine,
        client: StoreClient,
        config: StoreBenchConfig,
        *,
        prefix: str,
        stop: threading.Event,
    ) -> None:
        self.engine = engine
        self.client = client
        self.config = config
        self.prefix = prefix
        self.stop = stop
        is_zero_copy = config.mode == "zero-copy"
        self.access: Access = ZeroCopy(client) if is_zero_copy else PlainBytes(client)

    def arena(self, size_bytes: int, batch: int, memory_bytes: int = 0) -> Arena:
        """Return memory as the mode wants it; by default of one slot."""
        engine = self.engine if self.config.mode == "zero-copy" else None
        return Arena(engine, size_bytes, batch=batch, memory_bytes=memory_bytes)


class Load(Protocol):
    """The calls of one thread."""

    tally: Tally
    """Replaced when a measurement begins."""

    def call(self) -> None:
        """Make one call and count it. An error of the store is counted, not raised."""

    def close(self) -> list[bytes]:
        """Check what was put, give the memory back, and return the keys that are to be removed."""


class Puts:
    """Puts keys that are not there, round a ring."""

    def __init__(self, bound: Bound, case: Case, place: Place) -> None:
        self.tally = Tally()
        self._bound = bound
        self._size_bytes = case.size_bytes
        self._ring = ring_keys(bound.config, bound.prefix, case, place)
        self._put: list[list[bytes]] = []
        """What was put in this round."""
        self._left: list[bytes] = []
        """Of rounds before, what could not be removed."""
        self._arena = bound.arena(case.size_bytes, case.batch, bound.config.memory_bytes)
        self._slots = itertools.cycle(self._arena.slots)
        for keys, slot in zip(itertools.cycle(self._ring), self._arena.slots, strict=False):
            fill(slot, keys)

    def call(self) -> None:
        """See Load."""
        if len(self._put) == len(self._ring):
            self._clear()
        keys, slot = self._ring[len(self._put)], next(self._slots)
        if self._bound.config.verify:
            fill(slot, keys)
        self._put.append(keys)
        before_s = _clock()
        try:
            stored = self._bound.access.put(keys, slot)
        except _FAULTS as error:
            self.tally.note_failure(error, _clock() - before_s)
        else:
            self.tally.note("put", _clock() - before_s, len(keys), sum(stored))

    def close(self) -> list[bytes]:
        """See Load."""
        self._verify()
        self._arena.close()
        return self._owed()

    def _clear(self) -> None:
        """End a round: read each value once, if every byte is to be seen, and remove it."""
        self._verify()
        self._left = remove(self._bound.client, self._owed())
        self._put.clear()

    def _owed(self) -> list[bytes]:
        return list({*self._left, *itertools.chain.from_iterable(self._put)})

    def _verify(self) -> None:
        if not self._bound.config.verify:
            return
        for keys in self._put:
            if self._bound.stop.is_set():
                return
            self._read_back(keys, self._arena.slots[0])

    def _read_back(self, keys: list[bytes], slot: Slot) -> None:
        """Look at what was put. What was evicted since then is no wrong byte."""
        wipe(slot, keys)
        try:
            values = self._bound.access.get(keys, slot)
        except _FAULTS as error:
            self.tally.note_failure(error, 0)
            return
        _look(keys, values, self._size_bytes, self.tally)


class Gets:
    """Gets keys of the working set, each chosen by a draw."""

    def __init__(self, bound: Bound, case: Case, place: Place) -> None:
        self.tally = Tally()
        self._bound = bound
        self._size_bytes = case.size_bytes
        self._calls = itertools.cycle(_chosen(bound, case, place))
        self._arena = bound.arena(case.size_bytes, case.batch, bound.config.memory_bytes)
        self._slots = itertools.cycle(self._arena.slots)

    def call(self) -> None:
        """See Load."""
        keys, slot = next(self._calls), next(self._slots)
        is_verified = self._bound.config.verify
        if is_verified:
            wipe(slot, keys)
        before_s = _clock()
        try:
            values = self._bound.access.get(keys, slot)
        except _FAULTS as error:
            self.tally.note_failure(error, _clock() - before_s)
            return
        took_s = _clock() - before_s
        self.tally.note("get", took_s, len(keys), len(keys) - values.count(None))
        if is_verified:
            _look(keys, values, self._size_bytes, self.tally)

    def close(self) -> list[bytes]:
        """See Load."""
        self._arena.close()
        return []


class Exists:
    """Asks whether keys of the working set are there."""

    def __init__(self, bound: Bound, case: Case, place: Place) -> None:
        self.tally = Tally()
        self._client = bound.client
        self._calls = itertools.cycle(_chosen(bound, case, place))

    def call(self) -> None:
        """See Load."""
        keys = next(self._calls)
        before_s = _clock()
        try:
            there = self._client.batch_exists(keys)
        except _FAULTS as error:
            self.tally.note_failure(error, _clock() - before_s)
        else:
            self.tally.note("exists", _clock() - before_s, len(keys), sum(there))

    def close(self) -> list[bytes]:
        """See Load."""
        return []


class Mixed:
    """Gets or puts, as a coin falls whose sides weigh `gets` and the rest."""

    def __init__(self, bound: Bound, case: Case, place: Place) -> None:
        self._puts, self._gets = Puts(bound, case, place), Gets(bound, case, place)
        coin = _random(bound, place, "coin")
        share = bound.config.gets
        sides = [coin.random() < share for _ in range(PREPARED_CALLS)]
        self._sides = itertools.cycle(sides)

    @property
    def tally(self) -> Tally:
        """Of both kinds of calls."""
        return self._gets.tally

    @tally.setter
    def tally(self, tally: Tally) -> None:
        self._puts.tally = self._gets.tally = tally

    def call(self) -> None:
        """See Load."""
        (self._gets if next(self._sides) else self._puts).call()

    def close(self) -> list[bytes]:
        """See Load."""
        return self._puts.close() + self._gets.close()


LOADS: dict[str, type[Puts | Gets | Mixed | Exists]] = {
    "put": Puts,
    "get": Gets,
    "mixed": Mixed,
    "exists": Exists,
}


def remove(client: StoreClient, keys: list[bytes]) -> list[bytes]:
    """Remove keys, those that are gone already too; returns what is left if the store is away."""
    for start in range(0, len(keys), 1024):
        try:
            client.batch_remove(keys[start : start + 1024])
        except MooncakeError:
            return keys[start:]
    return []


def _chosen(bound: Bound, case: Case, place: Place) -> list[list[bytes]]:
    """Return the keys of each prepared call of one thread."""
    config, draws = bound.config, _random(bound, place, "keys")
    chooser = Chooser(config.keys, config.choice, config.skew)
    return [
        [filled_key(bound.prefix, case, chooser.choose(draws.random())) for _ in range(case.batch)]
        for _ in range(max(1, PREPARED_CALLS // case.batch))
    ]


def _random(bound: Bound, place: Place, what: str) -> random.Random:
    return random.Random(f"{bound.config.seed} {place.client} {place.thread} {what}")


def _look(keys: list[bytes], values: Sequence[Value | None], size_bytes: int, tally: Tally) -> None:
    for key, value in zip(keys, values, strict=True):
        if value is not None and (problem := find_wrong(key, value, size_bytes)):
            tally.note_wrong(problem)
