"""Runs that print what there is when a signal ends them."""

from __future__ import annotations

import contextlib
import signal
from collections.abc import Iterator
from typing import NoReturn

INTERRUPTED, TERMINATED = 130, 143


class Terminated(KeyboardInterrupt):
    """A SIGTERM, which ends a run like a Ctrl-C: what there is is printed."""


def exit_code(interrupt: KeyboardInterrupt) -> int:
    """Return what a run ends with that was ended by it."""
    return TERMINATED if isinstance(interrupt, Terminated) else INTERRUPTED


@contextlib.contextmanager
def terminable() -> Iterator[None]:
    """Have SIGTERM raise Terminated in the main thread."""

    def end(*_: object) -> NoReturn:
        raise Terminated

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
