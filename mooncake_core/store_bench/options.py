"""What a benchmark is asked to do: each field is a flag of `mooncake store bench`. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import fields

from mooncake_core.config.tables import (
    Address,
    PositiveSeconds,
    Size,
    Table,
    TransferConfig,
    size_bytes,
)
from mooncake_core.units import parse_size


class StoreBenchConfig(Table, frozen=True):
    """`mooncake store bench`: what is swept, for how long, and against which store."""

    loopback: bool = False
    """Start a master and store nodes of its own on this host, and end them."""
    master: Address = "127.0.0.1:7400"
    """Of the store that is measured, where it runs already."""
    op: str = "put,get"
    """put, get, mixed, exists: a list."""
    size: str = "4 KiB,64 KiB,1 MiB"
    """Sizes of one value, a list."""
    batch: str = "1"
    """Keys of one call, a list."""
    threads: str = "1"
    """Threads of each client that call at once, a list."""
    clients: Annotated[int, Meta(ge=1, le=64)] = 1
    """Processes that call at once."""
    mode: Literal["zero-copy", "bytes"] = "zero-copy"
    """Values come from and go to registered memory, or are plain bytes objects."""
    keys: Annotated[int, Meta(ge=1, le=10_000_000)] = 256
    """The working set: gets ask for as many, and puts begin again after as many."""
    choice: Literal["uniform", "zipf"] = "uniform"
    """Which key is asked for next: any of them alike, or few of them often."""
    skew: Annotated[float, Meta(gt=0, le=10)] = 0.99
    """Of zipf: how much more often the first keys are asked for."""
    gets: Annotated[float, Meta(ge=0, le=1)] = 0.5
    """Share of the calls of mixed that get; the others put."""
    replicas: Annotated[int, Meta(ge=1, le=16)] = 1
    """Copies of each value, on distinct nodes."""
    seconds: PositiveSeconds = 1.0
    """Of each measurement."""
    count: Annotated[int, Meta(ge=0, le=1_000_000_000)] = 0
    """Calls of each thread in a measurement, instead of seconds; 0: by time."""
    warm_up_s: Annotated[float, Meta(ge=0, le=600)] = 0.1
    """Before the first measurement of each row; not counted."""
    repeats: Annotated[int, Meta(ge=1, le=1000)] = 3
    """Measurements of each row."""
    verify: bool = False
    """Look at every byte read, and read once what was put. A wrong one ends in exit code 1."""
    prefix: Annotated[str, Meta(max_length=1000)] = ""
    """What the keys begin with; empty: a random word."""
    seed: Annotated[int, Meta(ge=0, lt=1 << 32)] = 1
    """Of the choice of keys."""
    memory: Size = "16 MiB"
    """That each thread's values walk through; at least a batch."""
    nodes: Annotated[int, Meta(ge=1, le=64)] = 1
    """Store nodes, with --loopback."""
    capacity: Size = "1 GiB"
    """Of each store node, with --loopback."""
    timeout_s: PositiveSeconds = 5.0
    """How long one call waits for the master."""
    transfer: TransferConfig = TransferConfig()

    def __post_init__(self) -> None:
        """Refuse what is no size, and what would be ignored."""
        size_bytes("memory", self.memory)
        size_bytes("capacity", self.capacity, minimum=1 << 20)
        if not self.prefix.isprintable():
            raise ValueError(f"prefix: {self.prefix!r} is no plain text")
        if self.loopback and self.master != _DEFAULTS["master"]:
            raise ValueError("master: not with loopback, which has its own")
        for name in ("nodes", "capacity"):
            if getattr(self, name) != _DEFAULTS[name] and not self.loopback:
                raise ValueError(f"{name}: only with loopback, and would be ignored")
        if self.loopback and self.replicas > self.nodes:
            raise ValueError(f"replicas: {self.replicas} need as many nodes, not {self.nodes}")
        if self.skew != _DEFAULTS["skew"] and self.choice != "zipf":
            raise ValueError("skew: only with choice zipf, and would be ignored")

    @property
    def memory_bytes(self) -> int:
        """The memory of a thread in bytes."""
        return parse_size(self.memory)

    @property
    def capacity_bytes(self) -> int:
        """The capacity of a node in bytes."""
        return parse_size(self.capacity)


_DEFAULTS = {field.name: field.default for field in fields(StoreBenchConfig)}
