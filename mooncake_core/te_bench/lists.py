"""Flags that are lists, such as "4 KiB,1 MiB": what a benchmark sweeps. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, TypeVar

from mooncake_core.errors import ConfigError, UsageError
from mooncake_core.units import format_size, parse_size

T = TypeVar("T")


def listed(key: str, text: str, read: Callable[[str], T]) -> list[T]:
    """Return the entries of a list, each once.

    Raises:
        UsageError: `read` refused an entry; the message starts with the flag `key`.
    """
    try:
        return list(dict.fromkeys(read(entry.strip()) for entry in text.split(",")))
    except (ConfigError, ValueError) as error:
        raise UsageError(f"--{key}: {error}") from error


def word(*words: Any) -> Callable[[str], Any]:
    """Return what reads one of `words`."""

    def read(text: str) -> Any:
        if text not in words:
            raise ValueError(f"{text!r} is none of {', '.join(words)}")
        return text

    return read


def size(most: int) -> Callable[[str], int]:
    """Return what reads a size from 1 to `most` bytes."""

    def read(text: str) -> int:
        found = parse_size(text)
        if not 1 <= found <= most:
            limit = format_size(most).replace(".00", "")
            raise ValueError(f"{text!r} is {found} bytes; 1 B to {limit} are possible")
        return found

    return read


def count(most: int) -> Callable[[str], int]:
    """Return what reads a whole number from 1 to `most`."""

    def read(text: str) -> int:
        if not re.fullmatch("[0-9]{1,9}", text) or not 1 <= int(text) <= most:
            raise ValueError(f"{text!r} is no whole number from 1 to {most}")
        return int(text)

    return read
