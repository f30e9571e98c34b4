"""How objects are put, and how puts end. Pure."""

from __future__ import annotations

import enum
import operator
from collections.abc import Iterable, Mapping
from typing import Annotated, Literal

from msgspec import Meta, Struct

Key = bytes | str
PinKind = Literal["none", "soft", "hard"]

PIN_NUMBERS: dict[PinKind, int] = {"none": 0, "soft": 1, "hard": 2}
"""As the wire has them."""

SOFT_PIN_S = 1800.0
"""That a soft pin lasts when nothing else is said."""

LONGEST_PIN_S = 1e9
"""That a soft pin can last; a hard one lasts longer."""

LONGEST_WAIT_S = 1e6
MAX_BYTES = (1 << 64) - 1
MAX_DEPTH = (1 << 32) - 1
MAX_PAGE = 1 << 20
MAX_REPLICAS = 16
MAX_PREFERRED = 64


def raw(key: Key) -> bytes:
    """Return the bytes that a key is; TypeError for what is none."""
    if isinstance(key, str):
        return key.encode()
    if isinstance(key, bytes):
        return key
    try:
        return bytes(memoryview(key))  # bytes(5) would be 5 zeros
    except TypeError:
        raise TypeError(f"a key is bytes or str, not {type(key).__name__}") from None


def check_type(name: str, value: object, kind: type | tuple[type, ...], needed: str) -> None:
    """Raise TypeError unless an argument is of a type; it says what is needed."""
    if not isinstance(value, kind):
        raise TypeError(f"{name} is {value!r}; {needed} is needed")


def check_list(name: str, values: Iterable[object], needed: str) -> None:
    """Raise TypeError for one thing, a text or a mapping where several things belong."""
    if isinstance(values, list | tuple):  # soon said: most are
        return
    if isinstance(values, str | bytes | Mapping) or not isinstance(values, Iterable):
        raise TypeError(f"{name} is one {type(values).__name__}; a list of {needed} is needed")


def check_timeout(timeout_s: float) -> None:
    """Raise ValueError for what is no time to wait."""
    check_type("timeout_s", timeout_s, (int, float), "a number of seconds")
    if not 0 <= timeout_s <= LONGEST_WAIT_S:
        raise ValueError(f"timeout_s is {timeout_s}; it must be from 0 to {LONGEST_WAIT_S:.0e}")


def check_number(name: str, number: int, least: int, most: int) -> None:
    """Raise ValueError unless it lies within its bounds, TypeError when it is no whole number."""
    try:
        is_within = least <= operator.index(number) <= most
    except TypeError:
        raise TypeError(f"{name} is {number!r}; a whole number is needed") from None
    if not is_within:
        raise ValueError(f"{name} is {number}; it must be from {least} to {most}")


def check_names(names: Iterable[str], what: str) -> tuple[str, ...]:
    """Return them, or raise TypeError unless they are names; a text is a list of texts as well."""
    if isinstance(names, str):
        raise TypeError(f"{what} is the one text {names!r}; a list or tuple of names is needed")
    check_list(what, names, "names")
    found = tuple(names)
    for name in found:
        check_type(f"one of {what}", name, str, "a name, as a text,")
    return found


def pin_seconds(kind: PinKind, soft_pin_s: float | None) -> float:
    """Return how long a pin lasts as the wire has it; ValueError for what is no such time."""
    if soft_pin_s is None:
        return SOFT_PIN_S if kind == "soft" else 0.0
    if kind != "soft":
        raise ValueError(f"soft_pin_s is {soft_pin_s}, and pin is {kind!r}; only a soft pin ends")
    check_type("soft_pin_s", soft_pin_s, (int, float), "a number of seconds")
    if not 0 < soft_pin_s <= LONGEST_PIN_S:
        raise ValueError(
            f"soft_pin_s is {soft_pin_s}; it must be more than 0 and at most {LONGEST_PIN_S:.0e}"
        )
    return soft_pin_s


def pin_number(kind: PinKind) -> int:
    """Return a kind of pin as the wire has it; ValueError when there is no such kind."""
    if not isinstance(kind, str) or kind not in PIN_NUMBERS:
        raise ValueError(f"pin is {kind!r}; it must be one of {', '.join(PIN_NUMBERS)}")
    return PIN_NUMBERS[kind]


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
    """How the objects of one call are to be kept.

    Attributes:
        replicas: copies, 1 to 16, each in a failure domain of its own; None: as the client is
            configured.
        strict: all copies, or TooFewNodes or OutOfSpace; else as many as can be had.
        upsert: replaces what is there, at the moment when the new value is whole.
        pin: "soft": evicted only when nothing else is left, for `soft_pin_s`; "hard": never
            evicted; "none": like any other.
        soft_pin_s: of a soft pin, and only of one: how many seconds it lasts; None: 30 minutes.
        preferred: names of store nodes to be tried first, in this order; at most 64.
        checksums: False: nobody can tell wrong bytes of it from right ones.
    """

    replicas: Annotated[int, Meta(ge=1, le=16)] | None = None
    strict: bool = False
    upsert: bool = False
    pin: PinKind = "none"
    soft_pin_s: float | None = None
    preferred: tuple[str, ...] = ()
    checksums: bool = True

    def __post_init__(self) -> None:
        """Refuse what the master would refuse, or would not mean what it says."""
        if self.replicas is not None:
            check_number("replicas", self.replicas, 1, MAX_REPLICAS)
        for name in ("strict", "upsert", "checksums"):
            check_type(name, getattr(self, name), bool, "True or False")
        check_names(self.preferred, "preferred")
        if len(self.preferred) > MAX_PREFERRED:
            raise ValueError(f"{len(self.preferred)} nodes are preferred; at most {MAX_PREFERRED}")
        pin_number(self.pin)
        pin_seconds(self.pin, self.soft_pin_s)


class Link(Struct, frozen=True, kw_only=True):
    """What an object belongs to: a chain of prefixes, a group, or both.

    Attributes:
        parent: key of what stands before it in its chain, which outlives it; empty: nothing does.
        depth: how many stand before it.
        group: name of what lives and dies with it; empty: it is alone.
        group_size: members without which none can be read; 0: not known. The most that a member
            says counts.
    """

    parent: Key = b""
    depth: int = 0
    group: Key = b""
    group_size: int = 0

    def __post_init__(self) -> None:
        """Refuse what is no key, and numbers that have no room on the wire."""
        check_type("parent", self.parent, (bytes, str), "a key, bytes or str,")
        check_type("group", self.group, (bytes, str), "a key, bytes or str,")
        check_number("depth", self.depth, 0, MAX_DEPTH)
        check_number("group_size", self.group_size, 0, MAX_DEPTH)
        if self.group_size and not self.group:
            raise ValueError(f"group_size is {self.group_size}, and there is no group")
