"""How puts cross into the native code, and how what became of them comes back. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from mooncake_core.errors import OutOfSpace
from mooncake_core.native import _native, translate
from mooncake_core.store.options import (
    Key,
    Link,
    PutOptions,
    PutResult,
    check_list,
    check_type,
    pin_number,
    pin_seconds,
)
from mooncake_core.transfer.numbers import Numbers, wrong_numbers

Buffer = bytes | bytearray | memoryview
Links = Sequence[Link | None]
Memory = tuple[Numbers, Numbers, Numbers | None]
"""Addresses, a length or capacity of each, and how many of them each object has."""

_RESULTS = tuple(PutResult)
_NativeLinks = list[tuple[Key, int, Key, int] | None]
_Failures = list[tuple[int, _native.Code, str]]
_Answer = tuple[bytes, _Failures, tuple[int, ...]]  # outcomes, failures, space where it failed


def columns(items: Iterable[tuple[Key, Buffer]]) -> tuple[list[Key], list[Buffer]]:
    """Return the keys and the values of pairs."""
    check_list("items", items, "pairs of a key and a value")
    pairs = list(items)
    try:
        return [key for key, _ in pairs], [value for _, value in pairs]
    except (TypeError, ValueError) as error:
        raise TypeError("one of items is no pair of a key and a value") from error


def native_options(options: PutOptions) -> _native.StorePutOptions:
    """Return them as the native client takes them; replicas 0: as it is configured."""
    check_type("options", options, PutOptions, "a PutOptions")
    return _native.StorePutOptions(
        replicas=options.replicas or 0,
        is_strict=options.strict,
        is_upsert=options.upsert,
        pin=pin_number(options.pin),
        soft_pin_s=pin_seconds(options.pin, options.soft_pin_s),
        has_checksums=options.checksums,
        preferred=list(options.preferred),
    )


def native_links(links: Links | None) -> _NativeLinks | None:
    """Return what each object belongs to as the native client takes it."""
    if links is None:
        return None
    check_list("links", links, "Links, one a key,")
    return [None if link is None else _native_link(link) for link in links]


def _native_link(link: Link) -> tuple[Key, int, Key, int]:
    check_type("a link", link, Link, "a Link, such as Link(parent='key'),")
    return link.parent, link.depth, link.group, link.group_size


def wrong_values(error: TypeError, keys: Sequence[Key], values: Sequence[Buffer]) -> TypeError:
    """Return the error that names the first value that has no bytes; `error` if all have."""
    for key, value in zip(keys, values, strict=True):
        found = wrong_buffer(error, f"the value of {key!r}", value)
        if found is not error:
            return found
    return error


def wrong_buffer(error: TypeError, name: str, value: object) -> TypeError:
    """Return the error that names an argument that has no bytes; `error` if it has."""
    try:
        memoryview(value)  # type: ignore[arg-type]
    except TypeError:
        kind = type(value).__name__
        return TypeError(f"{name} is of type {kind}; bytes, a bytearray or a memoryview is needed")
    return error


def wrong_memory(error: TypeError, memory: Memory, lengths: str) -> TypeError:
    """Return the error that names the first array of a wrong type; `error` if there is none."""
    addresses, sizes, counts = memory
    arrays = {"addresses": addresses, lengths: sizes, "counts": counts}
    return wrong_numbers(error, **{name: each for name, each in arrays.items() if each is not None})


def results(answer: _Answer) -> list[PutResult]:
    """Return how each put has gone, or raise the first fault, which then has all `results`.

    The error that is raised stands there as an equal one: were it itself there, it would keep the
    values that its traceback leads to until the garbage collector comes.
    """
    outcomes, failures, space = answer
    results = [_RESULTS[outcome] for outcome in outcomes]
    if failures:
        raise _first(results, failures, space)
    return results


def commits(answer: tuple[list[bool], _Failures]) -> list[bool]:
    """Return whether each object is visible, or raise the first fault; as `results`."""
    visible, failures = answer
    if failures:
        raise _first(visible, failures)
    return visible


def _first(
    outcomes: Sequence[object], failures: _Failures, space: Sequence[int] = (0,) * 6
) -> Exception:
    errors = list(outcomes)
    for failure in failures:
        errors[failure[0]] = _error(failure, space)
    first: Any = _error(failures[0], space)
    first.results = tuple(errors)  # of a ValueError too
    return first  # type: ignore[no-any-return]


def _error(failure: tuple[int, _native.Code, str], space: Sequence[int]) -> Exception:
    _, code, message = failure
    error = translate(_native.Error(code, message, False))
    if isinstance(error, OutOfSpace):
        (
            error.capacity_bytes,
            error.used_bytes,
            error.evictable_bytes,
            error.pinned_bytes,
            error.quarantined_bytes,
            error.largest_free_extent_bytes,
        ) = space
    return error
