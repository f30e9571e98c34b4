"""What a sweep consists of, and where the pieces of its batches lie. Pure.

One row's memory, on each side: each thread has a region of `slots` batches, and where it reads and
writes in turn, one for each. Locally the pieces of
a batch lie one after the other; at the target they are scattered over the region, the way blocks of
a KV cache are, so that no two of them can be merged into one.

    local    | slot 0: 0 1 2 | slot 1: 3 4 5 |
    target   |  0  5  3      |  1  4  2      |        piece i is block i * stride mod blocks
"""

from __future__ import annotations

import math
from array import array
from collections.abc import Iterable
from itertools import product
from typing import Annotated, Literal

from msgspec import Meta, Struct

from mooncake_core.te_bench.lists import count, listed, size, word
from mooncake_core.te_bench.options import BenchConfig
from mooncake_core.units import format_size

Direction = Literal["read", "write", "both"]
DIRECTIONS: tuple[Direction, ...] = ("read", "write", "both")
Positive = Annotated[int, Meta(ge=1, lt=1 << 40)]

MAX_BLOCK_BYTES = 1 << 30
MAX_BATCH = 4096
MAX_THREADS = 64
"""As many as the baselines can have."""
_GOLDEN = (math.sqrt(5) - 1) / 2


class Case(Struct, frozen=True, kw_only=True):
    """One row of a sweep."""

    transport: Literal["shm", "tcp", "auto"]
    direction: Direction
    block_bytes: int
    batch: int
    threads: int

    @property
    def batch_bytes(self) -> int:
        """Of one call."""
        return self.batch * self.block_bytes

    @property
    def operations(self) -> tuple[Literal["read", "write"], ...]:
        """What each thread does in turn."""
        return ("read", "write") if self.direction == "both" else (self.direction,)

    @property
    def regions(self) -> int:
        """Each thread has one for each of its operations."""
        return self.threads * len(self.operations)

    @property
    def name(self) -> str:
        """What people and `compare` know it by."""
        return f"{self.transport} {self.load}"

    @property
    def load(self) -> str:
        """The name without the transport: direction, block x batch x threads."""
        size = format_size(self.block_bytes).replace(".00", "")
        return f"{self.direction} {size} x {self.batch} x {self.threads}"


class Layout(Struct, frozen=True, kw_only=True):
    """Where the blocks of one region lie."""

    block_bytes: Positive
    batch: Positive
    slots: Positive

    @property
    def blocks(self) -> int:
        """Of the whole region."""
        return self.batch * self.slots

    @property
    def size_bytes(self) -> int:
        """Of the whole region."""
        return self.blocks * self.block_bytes

    def places(self) -> array[int]:
        """Return the byte offset of each piece in the target's region."""
        stride, blocks, size = self._stride(), self.blocks, self.block_bytes
        return array("Q", (piece * stride % blocks * size for piece in range(blocks)))

    def _stride(self) -> int:
        stride = max(1, round(self.blocks * _GOLDEN))
        while math.gcd(stride, self.blocks) != 1:
            stride += 1
        return stride


def make_layout(case: Case, memory_bytes: int) -> Layout:
    """Return one region's share of `memory_bytes`, and at least one batch."""
    slots = max(1, memory_bytes // case.regions // case.batch_bytes)
    return Layout(block_bytes=case.block_bytes, batch=case.batch, slots=slots)


def make_cases(config: BenchConfig) -> tuple[Case, ...]:
    """Return the rows that the lists of a config name, those of one transport together.

    Raises:
        ConfigError: an entry is no size, number or known word.
    """
    transports = listed("transport", config.transport, word("shm", "tcp", "auto"))
    directions = listed("direction", config.direction, word("read", "write", "both"))
    blocks = listed("block", config.block, size(MAX_BLOCK_BYTES))
    batches = listed("batch", config.batch, count(MAX_BATCH))
    threads = listed("threads", config.threads, count(MAX_THREADS))
    return tuple(
        Case(transport=way, block_bytes=block, batch=batch, threads=count, direction=direction)
        for way, block, batch, count, direction in product(
            transports, blocks, batches, threads, directions
        )
    )


def memory_needed(cases: Iterable[Case], memory_bytes: int) -> int:
    """Return the bytes that the largest row takes on each side."""
    return max(case.regions * make_layout(case, memory_bytes).size_bytes for case in cases)
