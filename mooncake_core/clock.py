"""Time as an argument: what shells hand to cores.

A core never reads a clock. A shell owns one `Clock` and passes `now_s` down; a simulator passes
its own. Thread-safe.
"""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """Seconds on a monotonic scale with an arbitrary zero."""

    def __call__(self) -> float:
        """Return now, in seconds."""
        ...


def monotonic_s() -> float:
    """Return the machine's monotonic time in seconds: never steps, stops only in suspend."""
    return time.monotonic()
