"""What turns text into token ids and back: the part in which tokenizers differ."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Codec(Protocol):
    """A vocabulary with its rules. Thread-safe."""

    vocab: int
    """Token ids are in [0, vocab)."""

    def encode(self, text: str, *, special: bool) -> list[int]:
        """Return the ids of `text`; `special` adds what the model wants around a text.

        Raises:
            RequestError: the text is not Unicode.
        """
        ...

    def decode(self, ids: Sequence[int]) -> str:
        """Return the text of `ids`; special and unknown ids have none."""
        ...

    def token_bytes(self, token: int) -> bytes | None:
        """Return the bytes that `token` adds to a text.

        None where a token's text depends on its neighbours, so that only `decode` can tell.
        """
        ...

    def token_id(self, text: str) -> int | None:
        """Return the id of the token that is written `text`."""
        ...
