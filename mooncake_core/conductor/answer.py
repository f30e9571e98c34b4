"""From token ids to the text of an answer, without what a stop string forbids. Pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol


class TokenText(Protocol):
    """Incremental decoding; never splits a character."""

    def push(self, token_id: int) -> str:
        """Return the text that is certain after one more token."""
        ...

    def finish(self) -> str:
        """Return the rest."""
        ...


class AnswerText:
    """Text of one answer as it grows.

    Text that may be the beginning of a stop string is held back until it is known not to be one.

    Args:
        decoder: fresh.
        stops: not empty strings.
        silent_ids: tokens that end an answer and are not part of its text.
    """

    def __init__(
        self, decoder: TokenText, stops: Sequence[str], silent_ids: Collection[int]
    ) -> None:
        self._decoder = decoder
        self._stops = stops
        self._silent_ids = frozenset(silent_ids)
        self._held = ""
        self.is_stopped = False
        """A stop string has come; what follows is not part of the answer."""

    def push(self, token_id: int) -> str:
        """Return the text that may be shown after one more token."""
        if token_id in self._silent_ids:
            return ""
        return self._shown(self._decoder.push(token_id))

    def finish(self) -> str:
        """Return the rest, at the end of the answer."""
        if self.is_stopped:
            return ""
        text = self._shown(self._decoder.finish()) + self._held
        self._held = ""
        return text

    def _shown(self, text: str) -> str:
        if self.is_stopped:
            return ""
        text = self._held + text
        starts = [start for stop in self._stops if (start := text.find(stop)) >= 0]
        if starts:
            self.is_stopped = True
            self._held = ""
            return text[: min(starts)]
        held = max((_overlap(text, stop) for stop in self._stops), default=0)
        self._held = text[len(text) - held :]
        return text[: len(text) - held]


def _overlap(text: str, stop: str) -> int:
    """Return the length of the longest end of `text` that `stop` begins with."""
    longest = min(len(text), len(stop) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(stop[:n])), 0)
