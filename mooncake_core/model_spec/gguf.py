"""Reading GGUF files: metadata, the list of tensors, and their numbers as float32.

Reads one file; otherwise pure. Every length in the file is checked against its end before use, so
that garbage is a ModelError and never a crash or a huge allocation.
Source: the GGUF specification, versions 2 and 3, and the block layouts of ggml.
"""

from __future__ import annotations

import math
import mmap
import struct
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from mooncake_core.errors import ModelError

Array = NDArray[np.float32]
Bytes = NDArray[np.uint8]

_SCALARS = {
    0: "B",
    1: "b",
    2: "H",
    3: "h",
    4: "I",
    5: "i",
    6: "f",
    7: "?",
    10: "Q",
    11: "q",
    12: "d",
}
_STRING = 8
_ARRAY = 9
_MAX_DIMENSIONS = 4


@dataclass(frozen=True, kw_only=True)
class GgufTensor:
    """One entry of the file's list of tensors."""

    name: str
    shape: tuple[int, ...]
    """Outermost dimension first; the file has it the other way round."""
    type_id: int
    start: int
    """Byte offset in the file."""


class GgufFile:
    """A GGUF file, mapped. `close` or use as a context manager; tensors are read when asked for.

    Raises:
        ModelError: not a GGUF file, damaged, or of an unknown version.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            with path.open("rb") as file:
                self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except (OSError, ValueError) as error:
            raise ModelError(f"{path}: cannot read it as GGUF: {error}") from error
        cursor = _Cursor(self._map, path)
        try:
            tensors, metadata = self._read_header(cursor)
            self.metadata = {cursor.string(): cursor.value() for _ in range(metadata)}
            entries = [_read_entry(cursor) for _ in range(tensors)]
            self.tensors = {t.name: t for t in self._place(entries, cursor.position)}
        except ModelError:
            self._map.close()
            raise

    def __enter__(self) -> GgufFile:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Unmap the file."""
        self._map.close()

    def get(self, key: str, kind: type[Any] | tuple[type[Any], ...], default: Any = None) -> Any:
        """Return the metadata value of `key`, which must be a `kind`.

        Raises:
            ModelError: the key is missing and there is no default, or it is something else.
        """
        value = self.metadata.get(key, default)
        if value is None:
            raise ModelError(f"{self.path}: GGUF metadata {key!r} is missing")
        if not isinstance(value, kind):
            raise ModelError(f"{self.path}: GGUF metadata {key!r} is a {type(value).__name__}")
        return value

    def read(self, name: str) -> Array:
        """Return tensor `name` as a new float32 array.

        Raises:
            ModelError: its type is not one that this reader knows.
        """
        tensor = self.tensors[name]
        layout = _LAYOUTS[tensor.type_id]
        count = math.prod(tensor.shape) // layout.elements
        raw = np.frombuffer(self._map, np.uint8, count * layout.bytes, tensor.start)
        # A copy: nothing may point into the mapping once it is closed.
        values = layout.decode(raw.reshape(count, layout.bytes).copy())
        return values.astype(np.float32, copy=False).reshape(tensor.shape)

    def _read_header(self, cursor: _Cursor) -> tuple[int, int]:
        if cursor.take(4) != b"GGUF":
            raise ModelError(f"{self.path}: not a GGUF file: it does not begin with GGUF")
        version = cursor.scalar("I")
        if version not in (2, 3):
            raise ModelError(f"{self.path}: GGUF version {version}; 2 and 3 are known")
        tensors, metadata = cursor.count(), cursor.count()
        return tensors, metadata

    def _place(self, entries: list[GgufTensor], position: int) -> list[GgufTensor]:
        alignment = self.get("general.alignment", int, 32)
        if alignment <= 0:
            raise ModelError(f"{self.path}: general.alignment is {alignment}")
        data = -(-position // alignment) * alignment
        placed = []
        for entry in entries:
            layout = _LAYOUTS.get(entry.type_id)
            if layout is None:
                known = ", ".join(known.name for known in _LAYOUTS.values())
                raise ModelError(
                    f"{self.path}: tensor {entry.name!r} is of type {entry.type_id}; known: {known}"
                )
            start = data + entry.start
            elements = math.prod(entry.shape)
            if elements % layout.elements or entry.shape[-1] % layout.elements:
                raise ModelError(
                    f"{self.path}: tensor {entry.name!r} {entry.shape} "
                    f"is not whole {layout.name} blocks"
                )
            if start + elements // layout.elements * layout.bytes > len(self._map):
                raise ModelError(
                    f"{self.path}: tensor {entry.name!r} lies beyond the end of the file"
                )
            placed.append(
                GgufTensor(name=entry.name, shape=entry.shape, type_id=entry.type_id, start=start)
            )
        return placed


class _Cursor:
    """Reads little-endian values one after the other; refuses to read past the end."""

    def __init__(self, data: mmap.mmap, path: Path) -> None:
        self._data = data
        self.path = path
        self.position = 0

    def take(self, size_bytes: int) -> bytes:
        end = self.position + size_bytes
        if end > len(self._data):
            raise ModelError(f"{self.path}: the file ends within its header (byte {self.position})")
        taken = self._data[self.position : end]
        self.position = end
        return taken

    def scalar(self, code: str) -> Any:
        return struct.unpack("<" + code, self.take(struct.calcsize("<" + code)))[0]

    def count(self) -> int:
        """A number of things of at least a byte each, so at most the bytes that are left."""
        count: int = self.scalar("Q")
        if count > len(self._data) - self.position:
            raise ModelError(f"{self.path}: a count of {count} is more than the file holds")
        return count

    def string(self) -> str:
        data = self.take(self.count())
        try:
            return data.decode("utf-8")
        except UnicodeDecodeError as error:
            raise ModelError(
                f"{self.path}: a string is not UTF-8 (byte {self.position})"
            ) from error

    def value(self) -> Any:
        kind = self.scalar("I")
        if kind != _ARRAY:
            return self._single(kind)
        kind = self.scalar("I")
        count = self.count()
        if kind in _SCALARS:
            code = f"{count}{_SCALARS[kind]}"
            return list(struct.unpack("<" + code, self.take(struct.calcsize("<" + code))))
        return [self._single(kind) for _ in range(count)]

    def _single(self, kind: int) -> Any:
        if kind == _STRING:
            return self.string()
        if kind not in _SCALARS:
            raise ModelError(f"{self.path}: unknown value type {kind} (byte {self.position})")
        return self.scalar(_SCALARS[kind])


def _read_entry(cursor: _Cursor) -> GgufTensor:
    name = cursor.string()
    dimensions = cursor.scalar("I")
    if not 1 <= dimensions <= _MAX_DIMENSIONS:
        raise ModelError(
            f"{cursor.path}: {name!r} has {dimensions} dimensions; at most {_MAX_DIMENSIONS}"
        )
    shape = tuple(cursor.scalar("Q") for _ in range(dimensions))[::-1]
    if 0 in shape:
        raise ModelError(f"{cursor.path}: tensor {name!r} is empty: {shape}")
    return GgufTensor(name=name, shape=shape, type_id=cursor.scalar("I"), start=cursor.scalar("Q"))


def _half(blocks: Bytes, start: int) -> Array:
    """Return the float16 at byte `start` of each block: [blocks, 1]."""
    half: Array = blocks[:, start : start + 2].copy().view(np.float16).astype(np.float32)
    return half


def _scaled(blocks: Bytes, numbers: NDArray[Any]) -> Array:
    """Return `numbers` times the factor that each block begins with."""
    scaled: Array = numbers.astype(np.float32) * _half(blocks, 0)
    return scaled


def _nibbles(packed: Bytes) -> Bytes:
    """Return 4-bit numbers: the low halves of all bytes of a block, then the high halves."""
    return np.concatenate([packed & 15, packed >> 4], axis=1)


def _q4_0(blocks: Bytes) -> Array:
    return _scaled(blocks, _nibbles(blocks[:, 2:]).astype(np.int8) - 8)


def _q4_1(blocks: Bytes) -> Array:
    return _scaled(blocks, _nibbles(blocks[:, 4:])) + _half(blocks, 2)


def _q5_0(blocks: Bytes) -> Array:
    fifth = np.unpackbits(blocks[:, 2:6], axis=1, bitorder="little") << 4
    numbers = _nibbles(blocks[:, 6:]) | fifth
    return _scaled(blocks, numbers.astype(np.int8) - 16)


def _q8_0(blocks: Bytes) -> Array:
    return _scaled(blocks, blocks[:, 2:].view(np.int8))


def _bf16(blocks: Bytes) -> Array:
    return (blocks.view(np.uint16).astype(np.uint32) << 16).view(np.float32)


@dataclass(frozen=True)
class _Layout:
    name: str
    elements: int
    bytes: int
    decode: Callable[[Bytes], NDArray[Any]]


_LAYOUTS = {
    0: _Layout("F32", 1, 4, lambda blocks: blocks.view(np.float32)),
    1: _Layout("F16", 1, 2, lambda blocks: blocks.view(np.float16)),
    2: _Layout("Q4_0", 32, 18, _q4_0),
    3: _Layout("Q4_1", 32, 20, _q4_1),
    6: _Layout("Q5_0", 32, 22, _q5_0),
    8: _Layout("Q8_0", 32, 34, _q8_0),
    30: _Layout("BF16", 1, 2, _bf16),
}
