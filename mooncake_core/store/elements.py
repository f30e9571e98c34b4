"""Where the elements of a tensor or an array are, as it says itself. Imports no array library."""

from __future__ import annotations

from typing import Any

from msgspec import Struct

from mooncake_core.store.tensor_format import TensorType

Array = Any
"""A torch.Tensor or a numpy.ndarray; neither package need be there."""


class Elements(Struct, frozen=True):
    """Contiguous elements in host memory."""

    type: TensorType
    address: int
    owner: Any
    """Keeps them in place."""


def elements_of(source: Array) -> Elements:
    """Return the elements of a tensor; of one that is not contiguous, or on a GPU, of a copy.

    Raises:
        TypeError: it is neither a torch.Tensor nor a numpy.ndarray, or it is sparse.
    """
    if _is_tensor(source):
        if str(source.layout) != "torch.strided":
            raise TypeError(f"a tensor of layout {source.layout}; a dense one can be stored")
        return _of_tensor(source.detach().resolve_conj().resolve_neg().cpu().contiguous())
    if _is_array(source):
        native = source.dtype.newbyteorder("=")
        return _of_array(source.astype(native, order="C", copy=False))
    raise TypeError(f"a {type(source).__name__}; a torch.Tensor or numpy.ndarray is needed")


def writable_elements_of(target: Array) -> Elements:
    """Return the elements of a tensor that is to be overwritten.

    Raises:
        TypeError: it cannot be: it is no tensor, read-only, not contiguous, or on a GPU.
    """
    if _is_tensor(target):
        is_plain = str(target.layout) == "torch.strided" and target.device.type == "cpu"
        is_odd = not is_plain or target.is_conj() or target.is_neg()
        if is_odd or not target.is_contiguous():
            raise TypeError("the tensor to read into is not dense, contiguous and on the CPU")
        return _of_tensor(target)
    if _is_array(target):
        if not (target.flags.c_contiguous and target.flags.writeable and target.dtype.isnative):
            raise TypeError("the array to read into is not contiguous, writable and little-endian")
        return _of_array(target)
    raise TypeError(f"a {type(target).__name__}; a torch.Tensor or numpy.ndarray is needed")


def _is_tensor(source: Array) -> bool:
    return hasattr(source, "data_ptr") and hasattr(source, "element_size")


def _is_array(source: Array) -> bool:
    return hasattr(source, "__array_interface__") and hasattr(source, "flags")


def _of_tensor(tensor: Array) -> Elements:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return Elements(TensorType(dtype, tuple(tensor.shape)), tensor.data_ptr(), tensor)


def _of_array(source: Array) -> Elements:
    address, _ = source.__array_interface__["data"]
    return Elements(TensorType(source.dtype.name, tuple(source.shape)), address, source)
