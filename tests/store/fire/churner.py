"""A client that makes whole rounds: `python -m tests.store.fire.churner JSON`."""

from __future__ import annotations

import json
import random
import sys
from array import array

from tests.store.fire.lines import answer_lines
from tests.store.fire.stepper import Stepper


class Churner(Stepper):
    """A client that makes whole rounds."""

    def rounds(self, first, count):
        """Make so many; return what was wrong."""
        return [
            problem
            for number in range(first, first + count)
            for problem in self._round(random.Random(number), f"round-{number}")
        ]

    def _round(self, rng, name):
        """Put four objects, use each, and leave one; any may be evicted at any time."""
        values = {f"{name}-{at}": rng.randbytes(rng.randrange(1 << 17)) for at in range(4)}
        keys = list(values)
        assert all(self.client.batch_put(values.items()))
        assert self.client.upsert(keys[0], values[keys[1]])
        values[keys[0]] = values[keys[1]]
        with self.client.open_write(f"{name}-open", size_bytes=100_000):
            pass  # it is given up
        seen = [self._view(keys[0]), self._read_removed(keys[1]), *self.client.batch_get(keys[2:])]
        for key, one in zip(keys, seen, strict=True):
            if one not in (None, values[key]):
                yield f"{key} has other bytes"
        self.client.batch_remove(keys[1:])

    def _view(self, key):
        view = self.client.view(key)
        if view is None:
            return None
        with view, view.buffer as seen:
            return bytes(seen)

    def _read_removed(self, key):
        """Read what is removed while it is leased."""
        with self.client.open_read([key]) as reader:
            self.client.remove(key)
            if reader.count == 0:
                return None
            where = array("Q", [self.memory.address]), array("Q", reader.sizes)
            is_read = reader.read(0, 0, *where)
            return bytes(self.memory.buffer[: reader.sizes[0]]) if is_read else None

    def remove_all(self):
        """Remove every object that can be seen."""
        return len(self.client.batch_remove([one.key for one in self.client.list_objects()]))


if __name__ == "__main__":
    answer_lines(Churner(**json.loads(sys.argv[1])))
