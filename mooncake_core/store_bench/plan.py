"""What is measured, under which keys, and which of them are asked for. Pure.

The working set of gets is `keys` values that all clients fill together. Puts are of keys that are
not there: each thread has a ring of its own, and what it has put is removed before the ring begins
again, while the clock stands still. So puts evict only if the working set does not fit the pool.
"""

from __future__ import annotations

import itertools
from bisect import bisect_left
from collections.abc import Iterator
from hashlib import blake2b
from itertools import product
from typing import Literal, NamedTuple

from msgspec import Struct

from mooncake_core.errors import UsageError
from mooncake_core.store_bench.options import StoreBenchConfig
from mooncake_core.te_bench.lists import count, listed, size, word
from mooncake_core.units import format_size

Operation = Literal["put", "get", "mixed", "exists"]

MAX_VALUE_BYTES = 1 << 30
MAX_BATCH = 1024
MAX_THREADS = 64


class Case(Struct, frozen=True, kw_only=True):
    """One row of a sweep."""

    operation: Operation
    size_bytes: int
    batch: int
    threads: int
    """Of each client."""

    @property
    def name(self) -> str:
        """What people know it by: operation, value x batch x threads."""
        value = format_size(self.size_bytes).replace(".00", "")
        return f"{self.operation} {value} x {self.batch} x {self.threads}"


class Place(NamedTuple):
    """Which thread of which client; both count from 0."""

    client: int
    thread: int


def make_cases(config: StoreBenchConfig) -> tuple[Case, ...]:
    """Return the rows that the lists of a config name.

    Raises:
        ConfigError: an entry is no operation, size or number, or the keys are too few for it.
    """
    cases = tuple(
        Case(operation=operation, size_bytes=value, batch=batch, threads=threads)
        for value, batch, threads, operation in product(
            listed("size", config.size, size(MAX_VALUE_BYTES)),
            listed("batch", config.batch, count(MAX_BATCH)),
            listed("threads", config.threads, count(MAX_THREADS)),
            listed("op", config.op, word("put", "get", "mixed", "exists")),
        )
    )
    for case in cases:
        if config.keys < (least := config.clients * case.threads * case.batch):
            raise UsageError(
                f"--keys: {config.keys} are too few for {case.name}; each thread of each client "
                f"needs a batch of its own, {least} in all"
            )
    return cases


def filled_key(prefix: str, case: Case, index: int) -> bytes:
    """Return the key of one value of the working set."""
    return f"{prefix}/{case.size_bytes}/{index}".encode()


def filled_by(config: StoreBenchConfig, client: int) -> range:
    """Return which values of the working set a client puts: all clients together put each once."""
    return range(client, config.keys, config.clients)


def ring_keys(config: StoreBenchConfig, prefix: str, case: Case, place: Place) -> list[list[bytes]]:
    """Return the keys of each call of one thread's ring of puts; at least one call."""
    share = config.keys // (config.clients * case.threads)
    head = f"{prefix}/{case.size_bytes}/{place.client}.{place.thread}"
    return [
        [f"{head}/{call}.{index}".encode() for index in range(case.batch)]
        for call in range(share // case.batch)
    ]


def pattern_of(key: bytes) -> int:
    """Return the seed of the bytes that are stored under a key: even, and a function of it alone.

    The complement of a pattern has the odd seed next to it.
    """
    return int.from_bytes(blake2b(key, digest_size=7).digest(), "little") & ~1


class Chooser:
    """Says which of `count` keys the next draw means, each draw a number in [0, 1)."""

    def __init__(self, count: int, choice: str, skew: float) -> None:
        self._count = count
        self._sums = _zipf_sums(count, skew) if choice == "zipf" else []

    def choose(self, draw: float) -> int:
        """Return an index below `count`; of zipf the lowest are the likeliest."""
        assert 0 <= draw < 1, draw
        if not self._sums:
            return int(draw * self._count)
        return min(bisect_left(self._sums, draw * self._sums[-1]), self._count - 1)


def _zipf_sums(count: int, skew: float) -> list[float]:
    weights: Iterator[float] = (1 / (index + 1) ** skew for index in range(count))
    return list(itertools.accumulate(weights))
