"""A process that moves arrays on GPUs; its driver is native/tests/cuda_stand_in.cc."""

import ctypes
import sys

import pytest

from mooncake_core.config.tables import TransferConfig
from mooncake_core.errors import BufferNotRegistered, TransferError
from mooncake_core.transfer import RemoteSegment, TransferEngine
from tests.transfer.peer import numbers

SIZE = 9_000_001
DRIVER = ctypes.CDLL("libcuda.so.1")


class Array:
    """Bytes on a GPU, as array libraries show them."""

    def __init__(self, device: int, content: bytes, *, is_read_only: bool = False) -> None:
        address, context = ctypes.c_uint64(), ctypes.c_void_p()
        DRIVER.cuInit(0)
        DRIVER.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
        DRIVER.cuCtxPushCurrent_v2(context)
        assert DRIVER.cuMemAlloc_v2(ctypes.byref(address), ctypes.c_size_t(len(content))) == 0
        DRIVER.cuCtxPopCurrent_v2(ctypes.byref(context))
        DRIVER.cuMemcpyHtoD_v2(address, content, ctypes.c_size_t(len(content)))
        self._address, self._size = address, len(content)
        self.__cuda_array_interface__ = {
            "shape": (self._size,),
            "typestr": "|u1",
            "data": (address.value, is_read_only),
            "version": 3,
        }

    def content(self) -> bytes:
        memory = ctypes.create_string_buffer(self._size)
        DRIVER.cuMemcpyDtoH_v2(memory, self._address, ctypes.c_size_t(self._size))
        return memory.raw

    def free(self) -> None:
        DRIVER.cuMemFree_v2(self._address)


def move(engine: TransferEngine, remote: RemoteSegment) -> None:
    content = bytes(range(251)) * (SIZE // 251 + 1)
    source = Array(0, content[:SIZE], is_read_only=True)
    target = Array(1, bytes(SIZE))
    with engine.register(source) as out, engine.register(target) as into:
        remote.write(numbers(out.address), numbers(0), numbers(SIZE))
        remote.submit_read(numbers(into.address), numbers(0), numbers(SIZE)).wait()
        assert target.content() == content[:SIZE]
        with pytest.raises(BufferNotRegistered, match="registered as a source"):
            remote.read(numbers(out.address), numbers(0), numbers(SIZE))
    with pytest.raises(BufferNotRegistered):
        remote.write(numbers(out.address), numbers(0), numbers(SIZE))


def refuse(engine: TransferEngine, remote: RemoteSegment) -> None:
    freed = Array(0, bytes(100))
    with engine.register(freed) as buffer:
        freed.free()
        with pytest.raises(TransferError, match="cuMemcpyDtoHAsync: CUDA_ERROR"):
            remote.write(numbers(buffer.address), numbers(0), numbers(100))
    with pytest.raises(ValueError, match="is not memory that the CUDA driver knows"):
        engine.register(freed)


def main(same_host: str) -> None:
    config = TransferConfig(same_host="shm" if same_host == "shm" else "network")
    engine = TransferEngine(config)
    segment = engine.create_segment(SIZE)
    remote = engine.open_segment(engine.endpoint, segment.id)
    move(engine, remote)
    refuse(engine, remote)
    DRIVER.stand_in_misuse.restype = ctypes.c_char_p
    assert DRIVER.stand_in_misuse() == b""
    engine.close()


if __name__ == "__main__":
    main(sys.argv[1])
