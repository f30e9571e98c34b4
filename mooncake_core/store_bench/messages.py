"""What a benchmark and its client processes say to each other: one JSON line each way. Pure."""

from __future__ import annotations

from msgspec import Struct

from mooncake_core.store_bench.options import StoreBenchConfig
from mooncake_core.store_bench.plan import Case
from mooncake_core.store_bench.tally import Count


class Start(Struct, frozen=True, kw_only=True):
    """The first thing a client process is told, on its command line."""

    config: StoreBenchConfig
    master: str
    client: int
    """Which it is, from 0."""
    prefix: str


class Prepare(Struct, frozen=True, kw_only=True, tag=True):
    """Fill this client's share of the working set, and make the threads' memory."""

    case: Case


class Run(Struct, frozen=True, kw_only=True, tag=True):
    """Call for so long."""

    seconds: float | None
    calls: int | None


class Finish(Struct, frozen=True, kw_only=True, tag=True):
    """Look at what was put, and remove everything of this row."""


class Ready(Struct, frozen=True, kw_only=True, tag=True):
    """That was done."""


class Failed(Struct, frozen=True, kw_only=True, tag=True):
    """It cannot be done; the message is for people."""

    problem: str


class Left(Struct, frozen=True, kw_only=True, tag=True):
    """The last thing a client process says, without being asked."""

    keys: int
    """That it has put, and could not remove."""


class ThreadDone(Struct, frozen=True, kw_only=True):
    """What one thread did, see Tally."""

    counts: dict[str, Count]
    failures: dict[str, int]
    called_s: float
    wrong: int
    first_wrong: str


class Measured(Struct, frozen=True, kw_only=True, tag=True):
    """What the threads of a client did."""

    threads: list[ThreadDone]
    read_faults: dict[str, int]
    """Reads that missed although the key was found, by cause, since the last answer."""
    evictions: int
    """Of the whole store meanwhile."""


Order = Prepare | Run | Finish
Answer = Ready | Measured | Failed
