"""Codecs from a tokenizer.json, as the `tokenizers` library reads them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import tokenizers

from mooncake_core.errors import ModelError, RequestError


class HfCodec:
    """A Codec (see base.py).

    Raises:
        ModelError: the file is no tokenizer.
    """

    def __init__(self, file: Path) -> None:
        try:
            self._tokenizer = tokenizers.Tokenizer.from_file(str(file))
        except Exception as error:  # The library raises nothing narrower.
            raise ModelError(f"{file}: cannot read it as a tokenizer: {error}") from error
        self._tokenizer.no_truncation()
        self._tokenizer.no_padding()
        self.vocab = self._tokenizer.get_vocab_size(with_added_tokens=True)
        added = self._tokenizer.get_added_tokens_decoder()
        self._special = {token for token, entry in added.items() if entry.special}
        self._is_byte_level = isinstance(self._tokenizer.decoder, tokenizers.decoders.ByteLevel)

    def encode(self, text: str, *, special: bool) -> list[int]:
        """See Codec."""
        # `encode` holds the GIL, for seconds on a text of megabytes; the batch calls release it.
        try:
            encoded = self._tokenizer.encode_batch_fast([text], add_special_tokens=special)
        except TypeError as error:  # The library takes UTF-8 only.
            raise RequestError("the text is not Unicode: a surrogate stands alone") from error
        ids: list[int] = encoded[0].ids
        return ids

    def decode(self, ids: Sequence[int]) -> str:
        """See Codec."""
        text: str = self._tokenizer.decode(list(ids), skip_special_tokens=True)
        return text

    def token_bytes(self, token: int) -> bytes | None:
        """See Codec."""
        if not self._is_byte_level:
            return None
        text = None if token in self._special else self._tokenizer.id_to_token(token)
        if text is None:
            return b""
        try:
            return bytes(_BYTES[character] for character in text)
        except KeyError:  # An added token: it stands for itself.
            return text.encode()

    def token_id(self, text: str) -> int | None:
        """See Codec."""
        token: int | None = self._tokenizer.token_to_id(text)
        return token


def _byte_alphabet() -> dict[str, int]:
    """Return character -> byte: printable Latin-1 stands for itself, the rest follows from U+0100.

    Source: the byte-level BPE of GPT-2.
    """
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    alphabet = {chr(byte): byte for byte in printable}
    return alphabet | {chr(0x100 + index): byte for index, byte in enumerate(others)}


_BYTES = _byte_alphabet()
