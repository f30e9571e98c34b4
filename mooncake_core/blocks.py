"""Names of KV blocks. Pure; equal in every process, whatever PYTHONHASHSEED.

A prompt is cut into blocks of `block_tokens` tokens at absolute offsets. The name of block i is

    name[i] = BLAKE2b-128(key = namespace, data = name[i-1] || tokens of block i, little-endian u32)

with name[-1] = 16 zero bytes. `namespace` is a digest over everything that changes the bytes of a
block and over the tenant's salt, so that equal names mean equal KV. Only whole blocks have names.
docs/BLOCK_NAMES.md holds golden vectors.
"""

from __future__ import annotations

import hashlib
import sys
from array import array
from collections.abc import Sequence
from dataclasses import dataclass

NAME_BYTES = 16
_NO_PARENT = bytes(NAME_BYTES)


@dataclass(frozen=True, kw_only=True)
class KvIdentity:
    """Everything that changes the bytes of a KV block, besides its tokens.

    Two workers may exchange blocks iff their identities are equal.
    """

    weights_digest: str
    """Hex digest of the model's weights and configuration."""
    dtype: str
    """Element type of K and V, for example "bfloat16"."""
    layout: str
    """Order of a block's bytes, for example "LKTHD" (layer, K|V, token, head, dim)."""
    block_tokens: int
    """Tokens a block, which is also the grid that prefill is computed on."""
    tp_rank: int = 0
    tp_size: int = 1
    kernel_class: str = "torch-cpu"
    """Kernels whose results are bit-equal share a class."""

    def namespace(self, salt: str = "") -> bytes:
        """Return the 32-byte key under which blocks of this identity and tenant salt are named."""
        fields = (
            self.weights_digest,
            self.dtype,
            self.layout,
            str(self.block_tokens),
            str(self.tp_rank),
            str(self.tp_size),
            self.kernel_class,
            salt,
        )
        digest = hashlib.blake2b(digest_size=32, person=b"mooncake-kv-ns-1")
        for field in fields:
            data = field.encode()
            digest.update(len(data).to_bytes(8, "little"))
            digest.update(data)
        return digest.digest()


def block_names(namespace: bytes, tokens: Sequence[int], block_tokens: int) -> list[bytes]:
    """Return the 16-byte name of every whole block of `tokens`, in order.

    Args:
        namespace: from `KvIdentity.namespace`.
        tokens: token ids, each in [0, 2^32).
        block_tokens: tokens a block; a last partial block gets no name.
    """
    words = array("I", tokens)
    assert words.itemsize == 4, f"array('I') has {words.itemsize} bytes here, 4 are needed"
    if sys.byteorder == "big":
        words.byteswap()
    data = memoryview(words).cast("B")
    block_bytes = 4 * block_tokens
    names: list[bytes] = []
    parent = _NO_PARENT
    for start in range(0, len(data) - block_bytes + 1, block_bytes):
        digest = hashlib.blake2b(parent, digest_size=NAME_BYTES, key=namespace)
        digest.update(data[start : start + block_bytes])
        parent = digest.digest()
        names.append(parent)
    return names
