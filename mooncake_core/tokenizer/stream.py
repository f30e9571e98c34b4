"""Decoding one token at a time, as answers are written. Pure."""

from __future__ import annotations

import codecs
from typing import Protocol

from mooncake_core.tokenizer.base import Codec

_REPLACEMENT = "\ufffd"


class TokenStream(Protocol):
    """The texts that `push` and `finish` return, joined, are the text of all ids."""

    def push(self, token: int) -> str:
        """Take the next id; return the text that is certain now: whole characters only."""
        ...

    def finish(self) -> str:
        """Return the text that was still held back."""
        ...


def open_stream(codec: Codec) -> TokenStream:
    """Return a stream that fits `codec`."""
    return ByteStream(codec) if codec.token_bytes(0) is not None else WindowStream(codec)


class ByteStream:
    """For codecs whose tokens are bytes of UTF-8, whatever their neighbours."""

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def push(self, token: int) -> str:
        """See TokenStream."""
        return self._decoder.decode(self._codec.token_bytes(token) or b"")

    def finish(self) -> str:
        """See TokenStream."""
        return self._decoder.decode(b"", final=True)


class WindowStream:
    """For all others: decodes the last tokens again, with the ones before them for context.

    Text that ends in a replacement character is held back: the rest of a character may follow.
    """

    def __init__(self, codec: Codec) -> None:
        self._codec = codec
        self._context: list[int] = []
        """Ids whose text is out already."""
        self._held: list[int] = []

    def push(self, token: int) -> str:
        """See TokenStream."""
        self._held.append(token)
        text = self._pending()
        if not text or text.endswith(_REPLACEMENT):
            return ""
        self._context, self._held = self._held, []
        return text

    def finish(self) -> str:
        """See TokenStream."""
        text = self._pending()
        self._context, self._held = [], []
        return text

    def _pending(self) -> str:
        before = self._codec.decode(self._context)
        return self._codec.decode(self._context + self._held)[len(before) :]
