"""What a benchmark is asked to do: each field is a flag of `mooncake te-bench`. Pure."""

from __future__ import annotations

from typing import Annotated, Literal

from msgspec import Meta
from msgspec.structs import fields

from mooncake_core.config.tables import (
    PositiveSeconds,
    Size,
    Table,
    TransferConfig,
    size_bytes,
)
from mooncake_core.units import parse_size

Fault = Literal["", "lane", "path", "peer"]


class BenchConfig(Table, frozen=True):
    """`mooncake te-bench`: what is swept, for how long, and what is asked besides."""

    block: str = "4 KiB,64 KiB,1 MiB"
    """Sizes of one piece of a batch, a list."""
    batch: str = "16"
    """Pieces of one call, a list."""
    threads: str = "1"
    """Threads that call at once, a list."""
    direction: str = "read,write"
    """read, write or both (each thread does one after the other), a list."""
    transport: str = "auto"
    """shm, tcp or auto (what the engine itself would take), a list."""
    seconds: PositiveSeconds = 0.5
    """Of each measurement, and of each of the baseline beside it."""
    warm_up_s: Annotated[float, Meta(ge=0, le=600)] = 0.1
    """Before the first measurement of each row; not counted."""
    repeats: Annotated[int, Meta(ge=1, le=1000)] = 5
    """Measurements of each row, alternating with the baseline."""
    memory: Size = "64 MiB"
    """That a row's threads walk through, on each side; at least a batch of each thread."""
    prepared: bool = False
    """Prepare each batch once and carry it out often, instead of describing it each time."""
    no_baseline: bool = False
    """Do not measure plain sockets or memcpy beside the engine."""
    model: str = ""
    """Take blocks and batch from this model's KV cache: a built-in name or a config.json."""
    tokens: Annotated[int, Meta(ge=256, le=1 << 20)] = 8192
    """Length of the cached prefix, with --model."""
    gpu: str = "a800"
    """Recomputes instead, with --model: a name (eight of them), 4xh800, or TFLOPS."""
    fault: Fault = ""
    """Break a lane, a path or the peer in the middle of a run, instead of the sweep."""
    soak: Annotated[float, Meta(ge=0, le=1e7)] = 0.0
    """Seconds of mixed sizes and random cuts, instead of the sweep; 0: none."""
    seed: Annotated[int, Meta(ge=0, lt=1 << 32)] = 1
    """Of what the soak chooses, with --soak."""
    transfer: TransferConfig = TransferConfig()

    def __post_init__(self) -> None:
        """Refuse a memory that is no size, and what would be ignored."""
        size_bytes("memory", self.memory, minimum=4096)
        if self.fault and self.soak:
            raise ValueError("fault: not with soak; one of the two at a time")
        if self.prepared and (self.fault or self.soak):
            raise ValueError("prepared: of the sweep only, not of fault or soak")
        if self.soak and self.model:
            raise ValueError("soak: not with model; it chooses its own sizes")
        for name, owner in (("tokens", "model"), ("gpu", "model"), ("seed", "soak")):
            if getattr(self, name) != _DEFAULTS[name] and not getattr(self, owner):
                raise ValueError(f"{name}: only with {owner}, and would be ignored")

    @property
    def memory_bytes(self) -> int:
        """The memory in bytes."""
        return parse_size(self.memory)


_DEFAULTS = {field.name: field.default for field in fields(BenchConfig)}
