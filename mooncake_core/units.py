"""Sizes as people write them. One parser for every entry point. Pure.

Decimal units are powers of 1000 (kB, MB, GB, TB), binary ones of 1024 (KiB, MiB, GiB, TiB); a bare
number is bytes. A unit is never guessed: `10g` is refused, since it could be either.
"""

from __future__ import annotations

import math
import re

from mooncake_core.errors import ConfigError

_UNITS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "TB": 10**12,
    "KIB": 1 << 10,
    "MIB": 1 << 20,
    "GIB": 1 << 30,
    "TIB": 1 << 40,
}
_SIZE = re.compile(r"([0-9]+(?:\.[0-9]+)?)\s*([A-Za-z]*)", re.ASCII)


def parse_size(text: str) -> int:
    """Return the bytes that `text` names, for example "1.5 GiB" or "64MB" or "4096".

    Raises:
        ConfigError: the text is no size, has an unknown unit, or is not a whole number of bytes.
    """
    match = _SIZE.fullmatch(text.strip()) if isinstance(text, str) else None
    if match is None:
        raise ConfigError(f"{text!r} is not a size; write a number and a unit, such as 512 MiB")
    number, unit = match.groups()
    factor = _UNITS.get(unit.upper())
    if factor is None:
        raise ConfigError(
            f"{text!r}: unknown unit {unit!r}; use B, kB, MB, GB, TB, KiB, MiB, GiB or TiB"
        )
    size = float(number) * factor if "." in number else int(number) * factor
    if not math.isfinite(size) or size >= 1 << 63:
        raise ConfigError(f"{text!r} is larger than 2^63 bytes")
    if size != int(size):
        raise ConfigError(f"{text!r} is not a whole number of bytes")
    return int(size)


def format_size(size_bytes: int) -> str:
    """Return `size_bytes` in the largest binary unit that is at most it, for example "1.50 GiB"."""
    for unit in ("TiB", "GiB", "MiB", "KiB"):
        factor = _UNITS[unit.upper()]
        if abs(size_bytes) >= factor:
            return f"{size_bytes / factor:.2f} {unit}"
    return f"{size_bytes} B"
