"""This store as store_driver.py calls it: the only place that knows its client's calls."""

from __future__ import annotations

from array import array
from typing import Any

from store_memory import SPAN_BYTES

from mooncake_core.config import StoreClientConfig, TransferConfig
from mooncake_core.errors import OutOfSpace
from mooncake_core.native import _native
from mooncake_core.store import StoreClient
from mooncake_core.transfer import TransferEngine


class Store:
    """This store, through its Python client."""

    def __init__(self, master: str, options: dict[str, Any]) -> None:
        chosen = {} if options.get("checksums", True) else {"checksums": False}
        try:
            config = StoreClientConfig(master=master, **chosen)
        except TypeError as error:
            raise SystemExit("this build's client cannot do without checksums") from error
        engine = TransferEngine(TransferConfig(same_host=options.get("same_host", "shm")))
        self._segment = engine.create_segment(SPAN_BYTES)
        self.address = self._segment.address
        self._view = self._segment.buffer
        self._client = StoreClient(engine, config)

    def put(self, key: str, address: int, size: int) -> bool:
        try:
            writer = self._client.open_write(key, size_bytes=size)
        except OutOfSpace:
            return False
        if writer is None:
            return False
        with writer:
            writer.write_part(0, array("Q", [address]), array("Q", [size]))
            writer.commit()
        return True

    def get(self, key: str, address: int, size: int) -> bool:
        return self._client.get_into(key, self._at(address, size)) == size

    def put_many(self, keys: list[str], addresses: list[int], size: int) -> bool:
        values = [self._at(address, size) for address in addresses]
        return all(self._client.batch_put(zip(keys, values, strict=True)))

    def get_many(self, keys: list[str], addresses: list[int], size: int) -> bool:
        lengths, is_right = array("Q", [size]), True
        with self._client.open_read(keys) as reader:
            for index, address in enumerate(addresses):
                is_right &= reader.read_part(index, 0, array("Q", [address]), lengths)
        return is_right

    def exists(self, key: str) -> bool:
        return self._client.exists(key)

    def exist(self, keys: list[str]) -> bool:
        return all(self._client.batch_exists(keys))

    def remove(self, keys: list[str]) -> None:
        for start in range(0, len(keys), 1024):
            self._client.batch_remove(keys[start : start + 1024])

    def memcpy(self, size: int, seconds: float) -> float:
        return _native.memcpy_rate(1, size, SPAN_BYTES, seconds) / size

    def _at(self, address: int, size: int) -> memoryview:
        start = address - self.address
        return self._view[start : start + size]
