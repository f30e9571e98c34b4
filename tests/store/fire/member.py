"""A client process under fire: `python -m tests.store.fire.member JSON`.

Each line on stdin is a command, each line on stdout its answer, in JSON. A read answers for each
key the version that it found, null (a miss), or "foreign": other bytes than any version of it.
"""

from __future__ import annotations

import json
import sys
from array import array

import msgspec

from mooncake_core.config import TransferConfig
from mooncake_core.config.tables import StoreClientConfig
from mooncake_core.store import StoreClient
from mooncake_core.transfer import TransferEngine
from tests.store.fire.lines import answer_lines
from tests.store.fire.values import PART_BYTES, SIZES, value_of, version_in


def words(*values):
    return array("Q", values)


class Member:
    """A client, with some registered memory of its own."""

    def __init__(self, transfer, client):
        self.engine = TransferEngine(msgspec.convert(transfer, TransferConfig))
        self.client = StoreClient(self.engine, msgspec.convert(client, StoreClientConfig))
        self.memory = self.engine.create_segment(max(SIZES))

    def get(self, keys):
        return [verdict(*pair) for pair in zip(keys, self.client.batch_get(keys), strict=True)]

    def get_into(self, keys):
        """As `get`, through memory that was used before."""
        verdicts, buffer = [], bytearray(max(SIZES))
        for key in keys:
            size = self.client.get_into(key, buffer)
            verdicts.append(verdict(key, None if size is None else bytes(buffer[:size])))
        return verdicts

    def read_parts(self, keys):
        """As `get`, part by part."""
        return [verdict(key, self._read_parts(key)) for key in keys]

    def _read_parts(self, key):
        value = b""
        with self.client.open_read([key]) as reader:
            if reader.count == 0:
                return None
            # Put at once, an object has one part; part by part, it has parts of PART_BYTES.
            whole = reader.sizes[0]
            part_bytes = whole if version_is_whole(key, whole) else PART_BYTES
            for part in range(max(1, -(-whole // part_bytes))):
                length = min(part_bytes, whole - part * part_bytes)
                where = words(self.memory.address), words(length)
                if not reader.read_part(0, part, *where):
                    return None
                value += bytes(self.memory.buffer[:length])
        return value

    def put(self, key, version, replicas):
        value = value_of(key, version)
        if version_is_whole(key, len(value)) and replicas == 1:
            return bool(self.client.put(key, value))
        return self._put_parts(key, value, replicas)

    def _put_parts(self, key, value, replicas):
        part_bytes = len(value) if version_is_whole(key, len(value)) else PART_BYTES
        self.memory.buffer[: len(value)] = value
        writer = self.client.open_write(
            key, size_bytes=len(value), part_bytes=part_bytes, replicas=replicas
        )
        if writer is None:
            return False
        with writer:
            for part in range(writer.part_count):
                start = part * part_bytes
                length = min(part_bytes, len(value) - start)
                writer.write_part(part, words(self.memory.address + start), words(length))
            return writer.commit()  # False: what was there could not be read, and now can again

    def remove(self, key):
        return self.client.remove(key)

    def remove_all(self, keys):
        return self.client.batch_remove(keys)

    def faults(self):
        return self.client.read_faults

    def close(self):
        self.client.close()
        self.engine.close()


def version_is_whole(key, size):
    """Whether objects of this key and size are written in one part."""
    return size <= PART_BYTES or sum(key.encode()) % 2 == 0


def verdict(key, value):
    if value is None:
        return None
    version = version_in(key, value)
    return "foreign" if version is None else version


def main(text):
    """Do what stdin says until it ends."""
    answer_lines(Member(**json.loads(text)))


if __name__ == "__main__":
    main(sys.argv[1])
