"""What a master says about objects. Pure."""

from __future__ import annotations

from msgspec import Struct, msgpack

from mooncake_core.store.options import PIN_NUMBERS, PinKind

_PINS: tuple[PinKind, ...] = tuple(PIN_NUMBERS)


class ObjectDescription(Struct, frozen=True, kw_only=True):
    """One object at one moment.

    Attributes:
        key: its bytes.
        size_bytes: of the whole object.
        part_bytes: of each part but the last; 0: one part.
        generation: new for each value that was ever put.
        pin: "none", "soft" (while it lasts) or "hard".
        leases: readers that hold it now.
        depth: how many stand before it in its chain.
        group: empty: it is in none.
        copies: the store node of each copy, by name; of a striped one that of its first stripe.
        nodes: every store node that has a part of a copy, once.
    """

    key: bytes
    size_bytes: int
    part_bytes: int
    generation: int
    pin: PinKind
    leases: int
    depth: int
    group: bytes
    copies: tuple[str, ...]
    nodes: tuple[str, ...]


class _Info(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """The order is the wire's."""

    key: bytes
    is_there: bool
    size_bytes: int
    part_bytes: int
    generation: int
    pin: int
    leases: int
    depth: int
    group: bytes
    copies: tuple[int, ...]
    nodes: tuple[int, ...]


class _Objects(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    cursor: int
    nodes: tuple[bytes, ...]
    objects: tuple[_Info, ...]


def decode_objects(
    body: bytes, *, unreadable: bool = False
) -> tuple[int, list[ObjectDescription | None]]:
    """Return the cursor and the objects of one answer.

    None for one that cannot be read, unless those are wanted too; a listing has none but objects
    that were stored.
    """
    page = msgpack.decode(body, type=_Objects)
    nodes = [name.decode(errors="replace") for name in page.nodes]
    return page.cursor, [
        _described(one, nodes) if one.is_there or unreadable else None for one in page.objects
    ]


def _described(info: _Info, nodes: list[str]) -> ObjectDescription:
    return ObjectDescription(
        key=info.key,
        size_bytes=info.size_bytes,
        part_bytes=info.part_bytes,
        generation=info.generation,
        pin=_PINS[info.pin],
        leases=info.leases,
        depth=info.depth,
        group=info.group,
        copies=tuple(nodes[number] for number in info.copies),
        nodes=tuple(nodes[number] for number in info.nodes),
    )
