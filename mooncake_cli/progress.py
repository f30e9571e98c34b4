"""What is under way, on stderr: one line that is written over, on a terminal."""

from __future__ import annotations

import sys


class Progress:
    """Call it with a few words. `with` clears the line at the end.

    Args:
        is_wanted: None: only where stderr is a terminal.
    """

    def __init__(self, is_wanted: bool | None) -> None:
        self._is_terminal = sys.stderr.isatty()
        self._is_wanted = self._is_terminal if is_wanted is None else is_wanted

    def __call__(self, words: str) -> None:
        """Show `words` in the place of what was there."""
        if self._is_wanted:
            text = f"\r\x1b[K{words}" if self._is_terminal else f"{words}\n"
            print(text, end="", file=sys.stderr, flush=True)

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, *_: object) -> None:
        """Leave an empty line to whoever writes next."""
        if self._is_wanted and self._is_terminal:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
