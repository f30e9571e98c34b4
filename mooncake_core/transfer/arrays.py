"""Where the memory of an array is, as the array itself says. Imports no array library."""

from __future__ import annotations

import itertools
from typing import Any

from msgspec import Struct


class ArrayMemory(Struct, frozen=True, kw_only=True):
    """One run of bytes, in host memory or on a GPU."""

    address: int
    size_bytes: int
    is_on_device: bool
    is_read_only: bool = False


def memory_of(source: Any) -> ArrayMemory | None:
    """Return the memory of a PyTorch tensor or of an object with `__cuda_array_interface__`.

    None: it is neither; the buffer protocol may know.

    Raises:
        TypeError: a tensor that is neither on the CPU nor on a CUDA device.
        BufferError: it is not contiguous.
    """
    if hasattr(source, "data_ptr") and hasattr(source, "element_size"):
        return _of_tensor(source)
    interface = getattr(source, "__cuda_array_interface__", None)
    return None if interface is None else _of_cuda_array(interface)


def _of_tensor(tensor: Any) -> ArrayMemory:
    kind = tensor.device.type
    if kind not in ("cpu", "cuda"):
        raise TypeError(f"a tensor on {tensor.device}; cpu or cuda is needed")
    if not tensor.is_contiguous():
        raise BufferError(
            f"a tensor of strides {tuple(tensor.stride())} and shape {tuple(tensor.shape)}; "
            "a contiguous one is needed"
        )
    return ArrayMemory(
        address=tensor.data_ptr(),
        size_bytes=tensor.numel() * tensor.element_size(),
        is_on_device=kind == "cuda",
    )


def _of_cuda_array(interface: dict[str, Any]) -> ArrayMemory:
    """Source: Numba's documentation, "CUDA Array Interface (Version 3)"."""
    shape = tuple(interface["shape"])
    item_bytes = int(interface["typestr"][2:])
    *strides, size_bytes = itertools.accumulate(
        reversed(shape), lambda size, count: size * count, initial=item_bytes
    )
    contiguous = tuple(reversed(strides))
    given = interface.get("strides") or contiguous
    if tuple(given) != contiguous:
        raise BufferError(
            f"an array of strides {tuple(given)} and shape {shape}; a contiguous one has "
            f"strides {contiguous}"
        )
    address, is_read_only = interface["data"]
    return ArrayMemory(
        address=address, size_bytes=size_bytes, is_on_device=True, is_read_only=is_read_only
    )
