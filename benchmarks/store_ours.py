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
        transfer = {key: options[key] for key in ("same_host", "copy_threads") if key in options}
        engine = TransferEngine(TransferConfig(**transfer))
        self._segment = engine.create_segment(SPAN_BYTES)
        self.address = self._segment.address
        self._client = StoreClient(engine, config)

    def put(self, key: str, address: int, size: int) -> bool:
        try:
            return bool(self._client.put_from(key, array("Q", [address]), array("Q", [size])))
        except OutOfSpace:
            return False

    def get(self, key: str, address: int, size: int) -> bool:
        where, room = array("Q", [address]), array("Q", [size])
        return self._client.get_into_memory(key, where, room) == size

    def put_many(self, keys: list[str], addresses: list[int], size: int) -> bool:
        lengths = array("Q", [size]) * len(keys)
        return all(self._client.batch_put_from(keys, array("Q", addresses), lengths))

    def get_many(self, keys: list[str], addresses: list[int], size: int) -> bool:
        room = array("Q", [size]) * len(keys)
        return set(self._client.batch_get_into(keys, array("Q", addresses), room)) == {size}

    def exists(self, key: str) -> bool:
        return self._client.exists(key)

    def exist(self, keys: list[str]) -> bool:
        return all(self._client.batch_exists(keys))

    def remove(self, keys: list[str]) -> None:
        for start in range(0, len(keys), 1024):
            self._client.batch_remove(keys[start : start + 1024])

    def memcpy(self, size: int, seconds: float) -> float:
        return _native.memcpy_rate(1, size, SPAN_BYTES, seconds) / size
