"""How puts cross into the native code, and how what became of them comes back. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from mooncake_core.errors import OutOfSpace
from mooncake_core.native import _native, translate
from mooncake_core.store.options import Key, Link, PutOptions, PutResult, pin_number, pin_seconds

Links = Sequence[Link | None]

_RESULTS = tuple(PutResult)
_NativeLinks = list[tuple[Key, int, Key, int] | None]
_Failures = list[tuple[int, _native.Code, str]]
_Answer = tuple[bytes, _Failures, tuple[int, int, int, int, int, int]]


def native_options(options: PutOptions) -> _native.StorePutOptions:
    """Return them as the native client takes them; replicas 0: as it is configured."""
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
    return [None if link is None else _native_link(link) for link in links]


def _native_link(link: Link) -> tuple[Key, int, Key, int]:
    return link.parent, link.depth, link.group, link.group_size


def results(answer: _Answer) -> list[PutResult]:
    """Return how each put has gone, or raise the first fault, which then has all `results`."""
    outcomes, failures, space = answer
    results = [_RESULTS[outcome] for outcome in outcomes]
    _raise_first(results, failures, space)
    return results


def commits(answer: tuple[list[bool], _Failures]) -> list[bool]:
    """Return whether each object is visible, or raise the first fault; as `results`."""
    visible, failures = answer
    _raise_first(visible, failures)
    return visible


def _raise_first(
    outcomes: Sequence[object], failures: _Failures, space: Sequence[int] = (0,) * 6
) -> None:
    if not failures:
        return
    errors = list(outcomes)
    for index, code, message in failures:
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
        errors[index] = error
    first: Any = errors[failures[0][0]]
    first.results = tuple(errors)  # of a ValueError too
    raise first
