"""How objects are put, and how puts end. Pure."""

from __future__ import annotations

import enum
from typing import Annotated, Literal

from msgspec import Meta, Struct

Key = bytes | str
PinKind = Literal["none", "soft", "hard"]

PIN_NUMBERS: dict[PinKind, int] = {"none": 0, "soft": 1, "hard": 2}
"""As the wire has them."""


def raw(key: Key) -> bytes:
    """Return the bytes that a key is."""
    return key.encode() if isinstance(key, str) else bytes(key)


class PutResult(enum.Enum):
    """How a put ended. True exactly when this call stored the object."""

    STORED = 0
    EXISTS = 1
    """It was there, or came there meanwhile: by an upsert, or with its node."""
    BUSY = 2
    """Another put of the key has not ended."""
    NOT_ADMITTED = 3
    """The master's admission policy did not want it."""
    FAILED = 4
    """An error was raised; it has more to say."""

    def __bool__(self) -> bool:
        """Return whether this call stored the object."""
        return self is PutResult.STORED


class PutOptions(Struct, frozen=True, kw_only=True):
    """How the objects of one call are to be kept."""

    replicas: Annotated[int, Meta(ge=1, le=16)] | None = None
    """Copies, each in a failure domain of its own; None: as the client is configured."""
    strict: bool = False
    """All copies or TooFewNodes or OutOfSpace; else as many as can be had."""
    upsert: bool = False
    """Replaces what is there, at the moment when the new value is whole."""
    pin: PinKind = "none"
    """soft: evicted only when nothing else is left, for `soft_pin_s`. hard: never evicted."""
    soft_pin_s: float = 0.0
    preferred: tuple[str, ...] = ()
    """Names of store nodes to be tried first, in this order."""
    checksums: bool = True
    """False: nobody can tell wrong bytes of it from right ones."""


class Link(Struct, frozen=True, kw_only=True):
    """What an object belongs to: a chain of prefixes, a group, or both."""

    parent: Key = b""
    """Key of what stands before it in its chain; empty: nothing. It outlives this object."""
    depth: int = 0
    """How many stand before it."""
    group: Key = b""
    """Name of what lives and dies with it; empty: it is alone."""
    group_size: int = 0
    """Members without which none can be read; 0: not known."""
