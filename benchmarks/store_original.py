"""The original's store as store_driver.py calls it; runs under the original's Python."""

from __future__ import annotations

import ctypes
from typing import Any

from mooncake.store import MooncakeDistributedStore
from store_memory import SPAN_BYTES


class Store:
    """The original's store, through its Python calls."""

    def __init__(self, master: str, options: dict[str, Any]) -> None:
        self._store = connect(master, 0, 512 << 20)
        self._memory = ctypes.create_string_buffer(SPAN_BYTES)
        self.address = ctypes.addressof(self._memory)
        self._must(self._store.register_buffer(self.address, SPAN_BYTES), 0)

    def put(self, key: str, address: int, size: int) -> bool:
        return bool(self._store.put_from(key, address, size) == 0)

    def get(self, key: str, address: int, size: int) -> bool:
        return bool(self._store.get_into(key, address, size) == size)

    def put_many(self, keys: list[str], addresses: list[int], size: int) -> bool:
        return set(self._store.batch_put_from(keys, addresses, [size] * len(keys))) == {0}

    def get_many(self, keys: list[str], addresses: list[int], size: int) -> bool:
        return set(self._store.batch_get_into(keys, addresses, [size] * len(keys))) == {size}

    def exists(self, key: str) -> bool:
        return bool(self._store.is_exist(key) == 1)

    def exist(self, keys: list[str]) -> bool:
        return set(self._store.batch_is_exist(keys)) == {1}

    def remove(self, keys: list[str]) -> None:
        self._store.remove_all(True)

    @staticmethod
    def _must(code: int, right: int) -> None:
        if code != right:
            raise SystemExit(f"the original returned {code}")


def connect(master: str, segment_bytes: int, buffer_bytes: int) -> Any:
    store = MooncakeDistributedStore()
    where = ("127.0.0.1", "P2PHANDSHAKE", segment_bytes, buffer_bytes, "tcp", "", master)
    if (code := store.setup(*where)) != 0:
        raise SystemExit(f"the original's setup returned {code}")
    return store
