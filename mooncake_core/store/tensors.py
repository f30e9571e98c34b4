"""Tensors and arrays in the store, with their dtypes and shapes; see tensor_format.

The functions take a StoreClient and block; in asyncio: `await store.call(put_tensor, key, tensor)`.
PyTorch and NumPy are loaded only to make tensors and arrays of them. Elements go straight between
the store and the memory of a tensor.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

from mooncake_core.errors import TensorMismatch
from mooncake_core.store.client import StoreClient
from mooncake_core.store.crossing import Links
from mooncake_core.store.elements import Array, Elements, elements_of, writable_elements_of
from mooncake_core.store.options import Key, Link, PutOptions, PutResult
from mooncake_core.store.tensor_format import (
    MAX_HEADER_BYTES,
    TensorType,
    decode_header,
    encode_header,
)
from mooncake_core.transfer import TransferEngine

if TYPE_CHECKING:
    import numpy
    import torch

_Range = tuple[int, int]  # address, bytes


def put_tensor(
    client: StoreClient,
    key: Key,
    tensor: Array,
    *,
    options: PutOptions | None = None,
    link: Link | None = None,
) -> PutResult:
    """Store a torch.Tensor or numpy.ndarray; as StoreClient.put.

    One that is contiguous and in host memory is read where it is; others are copied before.

    Raises:
        TypeError: it is neither, or has a dtype or layout that cannot be stored.
    """
    links = None if link is None else [link]
    return batch_put_tensors(client, [(key, tensor)], options=options, links=links)[0]


def batch_put_tensors(
    client: StoreClient,
    items: Iterable[tuple[Key, Array]],
    *,
    options: PutOptions | None = None,
    links: Links | None = None,
) -> list[PutResult]:
    """Store several tensors with one batch; as `put_tensor`, and as StoreClient.batch_put."""
    keys, tensors = [], []
    for key, tensor in items:
        keys.append(key)
        tensors.append(elements_of(tensor))
    headers = [encode_header(elements.type) for elements in tensors]
    with _Memory(client.engine) as memory:
        at = memory.of_bytes(array("B", b"".join(headers)))
        addresses, lengths = array("Q"), array("Q")
        for header, elements in zip(headers, tensors, strict=True):
            addresses.extend((at, memory.of_elements(elements)))
            lengths.extend((len(header), elements.type.size_bytes))
            at += len(header)
        return client.batch_put_from(
            keys,
            addresses,
            lengths,
            counts=array("Q", [2]) * len(keys),
            options=options,
            links=links,
        )


def get_tensor(client: StoreClient, key: Key) -> torch.Tensor | None:
    """Return a new tensor in host memory, or None: a miss.

    Raises:
        TensorMismatch: the object is no tensor.
    """
    return batch_get_tensors(client, [key])[0]


def batch_get_tensors(client: StoreClient, keys: Sequence[Key]) -> list[torch.Tensor | None]:
    """Return the tensor of each key with one batch; as `get_tensor`."""
    import torch  # noqa: PLC0415  an optional package

    def empty(size_bytes: int) -> torch.Tensor:
        return torch.empty(size_bytes, dtype=torch.uint8)

    return _get(client, keys, empty, _shaped)


def get_tensor_rows(client: StoreClient, key: Key, start: int, stop: int) -> torch.Tensor | None:
    """Return rows [start, stop) along the first dimension, a new tensor, or None: a miss.

    Only their chunks of 256 KiB are read. For shards: each process reads its own part.

    Raises:
        TensorMismatch: the object is no tensor, or has no such rows.
    """
    import torch  # noqa: PLC0415  an optional package

    with _Memory(client.engine) as memory, client.open_read([key]) as reader:
        if reader.count == 0:
            return None
        size_bytes = reader.sizes[0]
        head = array("B", bytes(min(size_bytes, MAX_HEADER_BYTES)))
        if not reader.read(0, 0, *_numbers([(memory.of_bytes(head), len(head))])):
            return None
        tensor, first = _decoded(key, memoryview(head), size_bytes)
        if not tensor.shape or not 0 <= start <= stop <= tensor.shape[0]:
            raise TensorMismatch(f"{key!r}: {tensor} has no rows [{start}, {stop})")
        rows = TensorType(tensor.dtype, (stop - start, *tensor.shape[1:]))
        raw = torch.empty(rows.size_bytes, dtype=torch.uint8)
        where = memory.of_elements(elements_of(raw)), rows.size_bytes
        offset = first + start * (tensor.size_bytes // max(tensor.shape[0], 1))
        return _shaped(raw, rows) if reader.read(0, offset, *_numbers([where])) else None


def get_array(client: StoreClient, key: Key) -> numpy.ndarray[Any, Any] | None:
    """Return a new array, or None: a miss.

    Raises:
        TensorMismatch: the object is no tensor, or of a dtype that NumPy does not have: bfloat16
            and the 8-bit floats, unless the package ml_dtypes was imported.
    """
    return batch_get_arrays(client, [key])[0]


def batch_get_arrays(
    client: StoreClient, keys: Sequence[Key]
) -> list[numpy.ndarray[Any, Any] | None]:
    """Return the array of each key with one batch; as `get_array`."""
    import numpy  # noqa: PLC0415  an optional package, ICN001

    def empty(size_bytes: int) -> numpy.ndarray[Any, Any]:
        return numpy.empty(size_bytes, dtype=numpy.uint8)

    def shaped(raw: numpy.ndarray[Any, Any], tensor: TensorType) -> numpy.ndarray[Any, Any]:
        try:
            dtype = numpy.dtype(tensor.dtype)
        except TypeError as error:
            raise TensorMismatch(
                f"{tensor}, a dtype that NumPy does not have; get_tensor gives a torch.Tensor"
            ) from error
        return raw.view(dtype).reshape(tensor.shape)

    return _get(client, keys, empty, shaped)


def get_tensor_into(client: StoreClient, key: Key, out: Array) -> bool:
    """Read a tensor into `out`, a torch.Tensor or numpy.ndarray; False: a miss.

    Args:
        client: whose store.
        key: of the tensor.
        out: contiguous, writable, in host memory. After a miss or an error it may hold anything.

    Raises:
        TensorMismatch: the object is no tensor, or not of the dtype and shape of `out`.
        TypeError: `out` cannot be read into.
    """
    return batch_get_tensors_into(client, [key], [out])[0]


def batch_get_tensors_into(
    client: StoreClient, keys: Sequence[Key], outs: Sequence[Array]
) -> list[bool]:
    """Read the tensor of each key into its place with one batch; as `get_tensor_into`."""
    if len(keys) != len(outs):
        raise ValueError(f"{len(keys)} keys, {len(outs)} tensors; one a key is needed")
    wanted = [writable_elements_of(out) for out in outs]
    heads = array("B", bytes(MAX_HEADER_BYTES)) * len(keys)
    with _Memory(client.engine) as memory, client.open_read(keys, leading=False) as reader:
        first = memory.of_bytes(heads)
        requests = []
        for index, (elements, size_bytes) in enumerate(zip(wanted, reader.found, strict=True)):
            if size_bytes is None:
                continue
            head = first + index * MAX_HEADER_BYTES
            runs = _runs_of(elements, memory.of_elements(elements), head, size_bytes)
            requests.append((index, 0, *_numbers(runs)))
        is_there = reader.read_ranges(requests)
        found = reader.found
    answers = [False] * len(keys)
    for (index, *_), there in zip(requests, is_there, strict=True):
        if there:
            at = index * MAX_HEADER_BYTES
            head_bytes = memoryview(heads)[at : at + MAX_HEADER_BYTES]
            _expect(keys[index], wanted[index].type, head_bytes, found[index] or 0)
        answers[index] = there
    return answers


def _runs_of(elements: Elements, address: int, head: int, size_bytes: int) -> list[_Range]:
    """Return where an object's bytes go; of one that does not fit only the header is read."""
    header_bytes = len(encode_header(elements.type))
    if size_bytes != header_bytes + elements.type.size_bytes:
        return [(head, min(size_bytes, MAX_HEADER_BYTES))]
    return [(head, header_bytes), (address, elements.type.size_bytes)]


def _expect(key: Key, wanted: TensorType, head: memoryview, size_bytes: int) -> None:
    tensor, start = _decoded(key, head, size_bytes)
    if tensor != wanted or start + wanted.size_bytes != size_bytes:
        raise TensorMismatch(f"{key!r}: holds {tensor}; {wanted} is needed to be read into this")


def _get(
    client: StoreClient,
    keys: Sequence[Key],
    empty: Callable[[int], Any],
    shaped: Callable[[Any, TensorType], Any],
) -> list[Any]:
    """Read whole objects into new memory, and return what they are."""
    values: list[Any] = [None] * len(keys)
    with _Memory(client.engine) as memory, client.open_read(keys, leading=False) as reader:
        requests = []
        for index, size_bytes in enumerate(reader.found):
            if size_bytes is None:
                continue
            values[index] = empty(size_bytes)
            address = memory.of_elements(elements_of(values[index]))
            requests.append((index, 0, *_numbers([(address, size_bytes)])))
        is_there = reader.read_ranges(requests)
    for (index, *_), there in zip(requests, is_there, strict=True):
        values[index] = _made(keys[index], values[index], shaped) if there else None
    return values


def _made(key: Key, raw: Any, shaped: Callable[[Any, TensorType], Any]) -> Any:
    size_bytes = len(raw)
    head = memoryview(bytes(raw[:MAX_HEADER_BYTES].tolist()))
    tensor, start = _decoded(key, head, size_bytes)
    return shaped(raw[start:], tensor)


def _decoded(key: Key, head: memoryview, size_bytes: int) -> tuple[TensorType, int]:
    try:
        return decode_header(head, size_bytes)
    except TensorMismatch as error:
        raise TensorMismatch(f"{key!r}: {error}") from error


def _shaped(raw: torch.Tensor, tensor: TensorType) -> torch.Tensor:
    import torch  # noqa: PLC0415  an optional package

    dtype = getattr(torch, tensor.dtype, None)
    if dtype is None:
        raise TensorMismatch(f"{tensor}, a dtype that this PyTorch does not have")
    return raw.view(dtype).view(tensor.shape)


def _numbers(runs: Iterable[_Range]) -> tuple[array[int], array[int]]:
    addresses, lengths = array("Q"), array("Q")
    for address, length in runs:
        addresses.append(address)
        lengths.append(length)
    return addresses, lengths


class _Memory:
    """Local memory of one call, registered until its end."""

    def __init__(self, engine: TransferEngine) -> None:
        self._engine = engine
        self._registered = ExitStack()

    def of_bytes(self, content: array[int]) -> int:
        """Register `content` and return its address."""
        address, count = content.buffer_info()
        return self._register(address, count * content.itemsize, content)

    def of_elements(self, elements: Elements) -> int:
        """Register a tensor's elements and return their address."""
        return self._register(elements.address, elements.type.size_bytes, elements.owner)

    def _register(self, address: int, size_bytes: int, owner: object) -> int:
        if size_bytes > 0:
            buffer = self._engine.register_address(address, size_bytes, owner)
            self._registered.enter_context(buffer)
        return address

    def __enter__(self) -> _Memory:
        return self

    def __exit__(self, *_: object) -> None:
        self._registered.close()
