"""The arrays that describe batches. Pure."""

from __future__ import annotations

from typing import Any

# array.array("Q"), or anything else that exports a one-dimensional, C-contiguous buffer of unsigned
# 64-bit integers. Python has no type for that before 3.12; another dtype is a TypeError.
Numbers = Any


def wrong_types(
    error: TypeError, batch: tuple[Numbers, Numbers, Numbers], notify: object = None
) -> TypeError:
    """Return the error that says which argument of a batch has a wrong type, and what is right."""
    addresses, offsets, lengths = batch
    if not isinstance(notify, bytes | None):
        error = TypeError(f"notify is a {type(notify).__name__}; bytes are needed")
    return wrong_numbers(error, addresses=addresses, offsets=offsets, lengths=lengths)


def wrong_numbers(error: TypeError, **arrays: Numbers) -> TypeError:
    """Return the error that names the first array of a wrong type; `error` if there is none."""
    for name, array in arrays.items():
        try:
            view = memoryview(array)
        except TypeError:
            return _needed(name, f"a {type(array).__name__}")
        if view.format not in ("Q", "L") or view.ndim != 1 or not view.c_contiguous:
            kind = f"a {type(array).__name__} of shape {view.shape} and format {view.format!r}"
            return _needed(name, kind)
    return error


def _needed(name: str, given: str) -> TypeError:
    return TypeError(
        f"{name} is {given}; a contiguous array of uint64 is needed, "
        'such as array.array("Q", [...])'
    )
