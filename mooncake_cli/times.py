"""Times for people."""

from __future__ import annotations


def brief(seconds: float) -> str:
    """Return two or three digits: 4.2µ, 150µ, 8.1m, 1.5."""
    for factor, unit in ((1e6, "µ"), (1e3, "m")):
        if seconds * factor < 999.5:
            return f"{seconds * factor:.{1 if seconds * factor < 9.95 else 0}f}{unit}"
    return f"{seconds:.1f}"
