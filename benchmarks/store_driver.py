"""One process of `store.py` and `eviction.py`, of this store or of the original: the same loop.

    PYTHON store_driver.py drive ours|original MASTER OPTIONS    puts and gets as it is told
    PYTHON store_driver.py own original MASTER BYTES             owns the original's memory

It runs under this project's Python or the original's, and imports only what its side has. A driver
reads one JSON order a line and answers with one: what it measured, or {"problem": ...}.
"""

from __future__ import annotations

import ctypes
import importlib
import itertools
import json
import os
import random
import sys
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from store_memory import SPAN_BYTES

SKEW = 0.9
"""Of Zipf's law, where keys are drawn by it."""


class Store(Protocol):
    """What both sides can do. Values lie in `SPAN_BYTES` registered bytes from `address` on.

    Each raises or returns the original's code where it could not.
    """

    address: int

    def put(self, key: str, address: int, size: int) -> bool: ...
    def get(self, key: str, address: int, size: int) -> bool: ...
    def put_many(self, keys: list[str], addresses: list[int], size: int) -> bool: ...
    def get_many(self, keys: list[str], addresses: list[int], size: int) -> bool: ...
    def exists(self, key: str) -> bool: ...
    def exist(self, keys: list[str]) -> bool: ...
    def remove(self, keys: list[str]) -> None: ...
    def memcpy(self, size: int, seconds: float) -> float: ...


class Driver:
    """Carries out orders against one store; each key is used once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._rounds = itertools.count()
        ctypes.memmove(store.address, os.urandom(1 << 20) * (SPAN_BYTES >> 20), SPAN_BYTES)

    def round(self, size: int, batch: int, seconds: float, limit: int) -> dict[str, float]:
        """Put new values, get them over and over, and remove them: values a second of both.

        Puts end after `seconds`, or `limit` bytes of values.
        """
        prefix = f"r{next(self._rounds)}"
        calls = self._calls(prefix, size, batch, max(1, limit // (size * batch)))
        store = self._store
        put, get = (store.put, store.get) if batch == 1 else (store.put_many, store.get_many)
        done, put_rate = timed(put, calls, seconds)
        put_calls = calls[:done]
        _, get_rate = timed(get, itertools.cycle(put_calls), seconds)
        keys = [call[0] for call in put_calls]
        store.remove(keys if batch == 1 else [key for some in keys for key in some])
        return {"put": put_rate * batch, "get": get_rate * batch}

    def exists(self, batch: int, seconds: float) -> dict[str, float]:
        """Ask for the same keys over and over: keys a second."""
        keys = [f"e{next(self._rounds)}-{index}" for index in range(batch)]
        self._store.put_many(keys, [self._store.address] * batch, 4096)
        ask: Callable[[Any], bool] = self._store.exists if batch == 1 else self._store.exist
        argument = keys[0] if batch == 1 else keys
        _, rate = timed(ask, itertools.repeat((argument,)), seconds)
        self._store.remove(keys)
        return {"exists": rate * batch}

    def memcpy(self, size: int, seconds: float) -> dict[str, float]:
        """Copy as much memory in as large pieces, without a store: pieces a second."""
        return {"memcpy": self._store.memcpy(size, seconds)}

    def check(self, size: int) -> dict[str, float]:
        """Put one value and get it elsewhere: every byte must be the same."""
        key, here = f"c{next(self._rounds)}", self._store.address
        there = here + SPAN_BYTES // 2
        ctypes.memset(there, 0, size)
        if not (self._store.put(key, here, size) and self._store.get(key, there, size)):
            raise SystemExit("a value could not be put and read again")
        if ctypes.string_at(here, size) != ctypes.string_at(there, size):
            raise SystemExit("a value that was read is not what was put")
        self._store.remove([key])
        return {}

    def storm(self, size: int, count: int, threads: int, keep: bool) -> dict[str, float]:
        """Put so many values back to back, whatever becomes of it, and remove them.

        Each thread puts its share. `keep`: leave them there. Answers with values a second, how
        many were not stored, and the seconds of one call.
        """
        prefix = f"s{next(self._rounds)}"
        storms = [
            Storm(self._store.put, self._calls(f"{prefix}-{thread}", size, 1, count // threads))
            for thread in range(threads)
        ]
        start_s = time.perf_counter()
        for storm in storms:
            storm.start()
        for storm in storms:
            storm.join()
        seconds = time.perf_counter() - start_s
        for error in (storm.error for storm in storms if storm.error is not None):
            raise SystemExit(f"a put has raised {error!r}")
        times = sorted(took for storm in storms for took in storm.times)
        if not keep:
            self._store.remove([key for storm in storms for key in storm.keys])
        return {
            "put": len(times) / seconds,
            "failures": sum(storm.failures for storm in storms),
            "p50_s": times[len(times) // 2],
            "p99_s": times[int(len(times) * 0.99)],
        }

    def survive(
        self, size: int, pool: int, keys: int, accesses: int, seed: int
    ) -> dict[str, float]:
        """Get keys by Zipf's law and put what misses, beside a plain LRU of `pool` bytes.

        Answers with both hit ratios, and which share of what the LRU holds in the end is there.
        """
        lru, hits, lru_hits, failures = Lru(pool // size), 0, 0, 0
        draws = random.Random(seed)
        sums = list(itertools.accumulate(1 / (rank + 1) ** SKEW for rank in range(keys)))
        name, address = f"z{next(self._rounds)}", self._store.address
        for index in draws.choices(range(keys), cum_weights=sums, k=accesses):
            key = f"{name}-{index}"
            lru_hits += lru.access(key)
            if self._store.get(key, address, size):
                hits += 1
            elif not self._store.put(key, address, size):
                failures += 1
        there = [self._store.exists(key) for key in lru.keys]
        self._store.remove([f"{name}-{index}" for index in range(keys)])
        return {
            "hits": hits / accesses,
            "lru_hits": lru_hits / accesses,
            "survived": sum(there) / len(there),
            "failures": failures,
        }

    def _calls(self, prefix: str, size: int, batch: int, count: int) -> list[tuple[Any, ...]]:
        places = itertools.cycle(range(self._store.address, self._store.address + SPAN_BYTES, size))
        if batch == 1:
            return [(f"{prefix}-{index}", next(places), size) for index in range(count)]
        return [
            (
                [f"{prefix}-{call}-{index}" for index in range(batch)],
                [next(places) for _ in range(batch)],
                size,
            )
            for call in range(count)
        ]


class Storm(threading.Thread):
    """One thread's puts, each timed."""

    def __init__(self, put: Callable[..., bool], calls: list[tuple[Any, ...]]) -> None:
        super().__init__(daemon=True)
        self.keys = [call[0] for call in calls]
        self.times: list[float] = []
        self.failures = 0
        self.error: BaseException | None = None
        self._put, self._calls = put, calls

    def run(self) -> None:
        clock = time.perf_counter
        try:
            for call in self._calls:
                before_s = clock()
                self.failures += not self._put(*call)
                self.times.append(clock() - before_s)
        except BaseException as error:
            self.error = error


class Lru:
    """A plain LRU of so many values: what an ideal cache of this order would hold."""

    def __init__(self, capacity: int) -> None:
        self.keys: OrderedDict[str, None] = OrderedDict()
        self._capacity = capacity

    def access(self, key: str) -> bool:
        """Return whether the key is there; it is afterwards, as the youngest."""
        is_there = key in self.keys
        self.keys[key] = None
        self.keys.move_to_end(key)
        if len(self.keys) > self._capacity:
            self.keys.popitem(last=False)
        return is_there


def timed(call: Callable[..., bool], arguments: Any, seconds: float) -> tuple[int, float]:
    """Call with each of `arguments` until they or `seconds` end: how many, and calls a second."""
    clock, done = time.perf_counter, 0
    start_s = now_s = clock()
    ends_s = start_s + seconds
    for each in arguments:
        if not call(*each):
            raise SystemExit(f"call {done} of {call.__name__} has failed")
        done += 1
        now_s = clock()
        if now_s >= ends_s:
            break
    return done, done / (now_s - start_s)


def say(answer: dict[str, Any]) -> None:
    print("ANSWER " + json.dumps(answer), flush=True)


def drive(side: str, master: str, options: str) -> None:
    """Answer orders until standard input ends."""
    module = importlib.import_module(f"store_{side}")
    try:
        driver = Driver(module.Store(master, json.loads(options)))
        say({})
        for line in sys.stdin:
            order = json.loads(line)
            say(getattr(driver, order.pop("do"))(**order))
    except (Exception, SystemExit) as problem:  # whatever it is, it ends this process
        say({"problem": f"{type(problem).__name__}: {problem}"})


def own(side: str, master: str, size: str) -> None:
    module = importlib.import_module(f"store_{side}")
    keep = module.connect(master, int(size), 16 << 20)
    say({})
    sys.stdin.read()
    del keep


def main(arguments: Sequence[str]) -> None:
    {"drive": drive, "own": own}[arguments[0]](*arguments[1:])
    sys.stdout.flush()
    os._exit(0)  # the original may hang or crash while it is torn down


if __name__ == "__main__":
    main(sys.argv[1:])
