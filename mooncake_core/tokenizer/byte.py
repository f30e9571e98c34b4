"""A codec without a file, for models with random weights: a token is a byte of UTF-8."""

from __future__ import annotations

from collections.abc import Sequence

BOS = 256
EOS = 257
BYTE_VOCAB = 258


class ByteCodec:
    """A Codec (see base.py): ids 0 to 255 are bytes, then bos and eos. Larger ids have no text."""

    def __init__(self, vocab: int) -> None:
        assert vocab >= BYTE_VOCAB, vocab
        self.vocab = vocab

    def encode(self, text: str, *, special: bool) -> list[int]:
        """See Codec."""
        ids = list(text.encode("utf-8", errors="replace"))
        return [BOS, *ids] if special else ids

    def decode(self, ids: Sequence[int]) -> str:
        """See Codec."""
        return bytes(token for token in ids if token < 256).decode("utf-8", errors="replace")

    def token_bytes(self, token: int) -> bytes | None:
        """See Codec."""
        return bytes([token]) if token < 256 else b""

    def token_id(self, text: str) -> int | None:
        """See Codec."""
        return {"<bos>": BOS, "<eos>": EOS}.get(text)
