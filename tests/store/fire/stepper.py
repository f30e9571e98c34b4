"""A client that takes one step at a time: `python -m tests.store.fire.stepper JSON`."""

from __future__ import annotations

import json
import random
import sys
import time
from array import array

import msgspec

from mooncake_core.config import TransferConfig
from mooncake_core.config.tables import StoreClientConfig
from mooncake_core.store import PutOptions, StoreClient
from mooncake_core.transfer import TransferEngine
from tests.store.fire.lines import answer_lines


def content(key, size):
    """Return the only bytes that are ever put under this key with this size."""
    return random.Random(f"{key} {size}").randbytes(size)


class Stepper:
    """One object that is written or read in parts, and whole ones beside it."""

    def __init__(self, transfer, client, size, parts):
        self.engine = TransferEngine(msgspec.convert(transfer, TransferConfig))
        self.client = StoreClient(self.engine, msgspec.convert(client, StoreClientConfig))
        self.size, self.parts = size, parts
        self.memory = self.engine.create_segment(size)
        self.writer = self.reader = self.view = None

    def where(self):
        """Return where others find the memory that is read into."""
        return [self.engine.endpoint, self.memory.id]

    def open_write(self, key, is_upsert=False):
        """Begin to write it."""
        self.memory.buffer[:] = content(key, self.size)
        self.writer = self.client.open_write(
            key,
            size_bytes=self.size,
            part_bytes=self.size // self.parts,
            options=PutOptions(upsert=is_upsert),
        )
        return self.writer is not None

    def write_part(self, part):
        """Write one part, from registered memory."""
        self.writer.write_part(part, *self._piece(part))

    def commit(self):
        """End the write."""
        return self.writer.commit()

    def write_and_commit(self, parts=None):
        """Write these parts, or all, and end the write; after an error it is given up."""
        with self.writer:
            for part in range(self.parts) if parts is None else parts:
                self.write_part(part)
            return self.commit()

    def put(self, key, size):
        """Put all of an object at once."""
        return bool(self.client.put(key, content(key, size)))

    def upsert(self, key, size):
        """Put all of an object at once, whatever is there."""
        return bool(self.client.upsert(key, content(key, size)))

    def open_read(self, key):
        """Lease it; how many there are."""
        self.key = key
        self.memory.buffer[:] = bytes(self.size)
        self.reader = self.client.open_read([key])
        return self.reader.count

    def read_part(self, part):
        """Read one part; None: a miss, False: other bytes than were put."""
        size = self.size // self.parts
        if not self.reader.read_part(0, part, *self._piece(part)):
            return None
        start = part * size
        got = self.memory.buffer[start : start + size]
        return bytes(got) == content(self.key, self.size)[start : start + size]

    def get(self, key, size):
        """Read all of an object at once; None: a miss, False: other bytes than were put."""
        value = self.client.get(key)
        return None if value is None else value == content(key, size)

    def open_view(self, key):
        """Look at an object of this size in place; whether it is a copy."""
        self.key, self.view = key, self.client.view(key)
        return self.view.is_copy

    def look(self):
        """Return whether the view shows what was put."""
        with self.view.buffer as shown:
            return bytes(shown) == content(self.key, self.size)

    def close_view(self):
        """Let go of it."""
        self.view.close()

    def faults(self):
        """Return the client's misses by cause."""
        return self.client.read_faults

    def keep_busy(self, seconds):
        """Let the interpreter do nothing but count, and return how far it came."""
        end, count = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            count += 1
        return count

    def close(self):
        """Leave."""
        self.client.close()
        self.engine.close()

    def _piece(self, part):
        size = self.size // self.parts
        return array("Q", [self.memory.address + part * size]), array("Q", [size])


if __name__ == "__main__":
    answer_lines(Stepper(**json.loads(sys.argv[1])))
