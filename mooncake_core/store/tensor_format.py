"""How a tensor is an object that says what it is. Pure.

An object is a header and then the elements, in row-major order and little-endian:

    0      4         6            8                      start
    | MCTN | version | body bytes | body, padded with 0s | elements ...

The body is the msgpack array [dtype, [dimension, ...]]. `start` is a multiple of 64, so that the
elements are aligned wherever an object is read to. Nothing in it is executed, and a header never
makes a reader take more memory than the object has bytes.
"""

from __future__ import annotations

import math
import struct
from typing import Annotated

import msgspec
from msgspec import Meta, Struct

from mooncake_core.errors import TensorMismatch

VERSION = 1
MAX_HEADER_BYTES = 384
"""No header is longer: 32 dimensions of at most 9 bytes, a name of at most 32, and what holds them
together."""
ITEM_BYTES = {
    "bool": 1,
    "uint8": 1,
    "int8": 1,
    "uint16": 2,
    "int16": 2,
    "uint32": 4,
    "int32": 4,
    "uint64": 8,
    "int64": 8,
    "float8_e4m3fn": 1,
    "float8_e5m2": 1,
    "bfloat16": 2,
    "float16": 2,
    "float32": 4,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}
"""Every dtype that can be stored, by the name that PyTorch and NumPy have for it."""

_MAGIC = b"MCTN"
_START = struct.Struct("<4sHH")
_ALIGNMENT = 64
_MOST = 1 << 60


class TensorType(Struct, frozen=True, array_like=True, forbid_unknown_fields=True):
    """What a tensor is, without its elements."""

    dtype: Annotated[str, Meta(max_length=32)]
    """A name in ITEM_BYTES."""
    shape: Annotated[tuple[Annotated[int, Meta(ge=0, le=_MOST)], ...], Meta(max_length=32)]

    @property
    def size_bytes(self) -> int:
        """Of the elements."""
        return math.prod(self.shape) * ITEM_BYTES[self.dtype]

    def __str__(self) -> str:
        """Return it as people write it, such as float32[2, 3]."""
        return f"{self.dtype}{list(self.shape)}"


def encode_header(tensor: TensorType) -> bytes:
    """Return what stands before the elements.

    Raises:
        TypeError: there is no such dtype, or there are too many dimensions.
    """
    if tensor.dtype not in ITEM_BYTES:
        raise TypeError(f"dtype {tensor.dtype!r}; what can be stored is {', '.join(ITEM_BYTES)}")
    if len(tensor.shape) > 32:
        raise TypeError(f"{len(tensor.shape)} dimensions; at most 32 can be stored")
    body = msgspec.msgpack.encode(tensor)
    header = _START.pack(_MAGIC, VERSION, len(body)) + body
    return header + bytes(-len(header) % _ALIGNMENT)


def decode_header(content: memoryview, size_bytes: int) -> tuple[TensorType, int]:
    """Return what an object says that it is, and where its elements start.

    Args:
        content: its first bytes: all, or at least MAX_HEADER_BYTES.
        size_bytes: of the whole object.

    Raises:
        TensorMismatch: it is no tensor, or not one that this version knows.
    """
    if len(content) < _START.size or bytes(content[:4]) != _MAGIC:
        raise TensorMismatch("no tensor: it does not begin like one")
    _, version, body_bytes = _START.unpack_from(content)
    if version != VERSION:
        raise TensorMismatch(f"a tensor of format {version}, and only {VERSION} is known here")
    start = -(-(_START.size + body_bytes) // _ALIGNMENT) * _ALIGNMENT
    try:
        body = content[_START.size : _START.size + body_bytes]
        tensor = msgspec.msgpack.decode(body, type=TensorType)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise TensorMismatch(f"no tensor: its header is damaged: {error}") from error
    _check(tensor, size_bytes - start)
    return tensor, start


def _check(tensor: TensorType, size_bytes: int) -> None:
    """Raise TensorMismatch unless elements of so many bytes can be this tensor."""
    if tensor.dtype not in ITEM_BYTES:
        raise TensorMismatch(f"a tensor of dtype {tensor.dtype!r}, which is not known here")
    # A dimension of 0 hides how large the others are, and libraries multiply them.
    if math.prod(max(count, 1) for count in tensor.shape) > _MOST:
        raise TensorMismatch(f"no tensor: its shape is {list(tensor.shape)}")
    if tensor.size_bytes != size_bytes:
        raise TensorMismatch(
            f"no tensor: {tensor} has {tensor.size_bytes} bytes of elements, and it {size_bytes}"
        )
