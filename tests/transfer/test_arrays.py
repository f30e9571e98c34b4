"""Tensors as local memory, by what they say of themselves."""

import ctypes
from typing import Any

import pytest
import torch

from mooncake_core.errors import TransferError
from mooncake_core.transfer import TransferEngine
from mooncake_core.transfer.arrays import ArrayMemory, memory_of
from tests.transfer.peer import Peer, numbers


class OnGpu:
    """What says that it is an array on a GPU."""

    def __init__(self, **interface: Any) -> None:
        self.__cuda_array_interface__ = {"typestr": "<f4", "data": (4096, False), **interface}


def test_a_tensor_of_any_type_is_written_and_read(engine: TransferEngine, peer: Peer) -> None:
    source = torch.arange(1000).to(torch.bfloat16).view(10, 100).requires_grad_()
    target = torch.zeros(1000, dtype=torch.float16)
    segment_id = peer.call("create", 4096)
    remote = engine.open_segment(peer.call("endpoint"), segment_id)
    with engine.register(source) as out, engine.register(target) as into:
        assert out.size_bytes == 2000
        remote.write(numbers(out.address), numbers(3), numbers(2000))
        remote.read(numbers(into.address), numbers(3), numbers(2000))
    assert torch.equal(target.view(torch.int16), source.detach().view(torch.int16).flatten())


def test_a_tensor_that_is_no_run_of_bytes_is_refused(engine: TransferEngine) -> None:
    with pytest.raises(BufferError, match="a contiguous one is needed"):
        engine.register(torch.zeros(4, 4).T)
    with pytest.raises(TypeError, match="a tensor on meta; cpu or cuda is needed"):
        engine.register(torch.zeros(4, device="meta"))
    with pytest.raises(ValueError, match="no range of memory"):
        engine.register(torch.zeros(0))


@pytest.mark.parametrize("strides", [None, (80, 16, 4)])
def test_an_array_on_a_gpu_is_where_it_says(strides: tuple[int, ...] | None) -> None:
    array = OnGpu(shape=(2, 5, 4), strides=strides, data=(4096, True))
    assert memory_of(array) == ArrayMemory(
        address=4096, size_bytes=160, is_on_device=True, is_read_only=True
    )


def test_an_array_of_no_dimensions_is_one_item() -> None:
    memory = memory_of(OnGpu(shape=()))
    assert memory is not None and memory.size_bytes == 4


def test_a_strided_array_on_a_gpu_is_refused() -> None:
    with pytest.raises(BufferError, match=r"a contiguous one has strides \(16, 4\)"):
        memory_of(OnGpu(shape=(4, 4), strides=(4, 16)))


def test_without_a_driver_an_array_on_a_gpu_is_refused_and_said_why(
    engine: TransferEngine,
) -> None:
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        with pytest.raises(TransferError, match=r"needs the CUDA driver: libcuda\.so\.1"):
            engine.register(OnGpu(shape=(4,)))
    else:
        pytest.skip("this host has a CUDA driver")
